"""Schedules of nodes: honoured where they can be read, repaired where not, and never in the way."""

from datetime import UTC, datetime

import pytest

from skep.dataone.source_type import cron_of
from skep.dataone.types import Schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "due"),
    [
        (Schedule(min="0/5", mday="*", wday="?"), "2026-01-01T00:01", "2026-01-01T00:05"),
        (Schedule(min="30", hour="3", mday="*", wday="?"), "2026-01-01T04:00", "2026-01-02T03:30"),
        (Schedule(min=" 0 ", hour="0", mday="?", wday="1"), "2026-01-01T00:00", "2026-01-04T00:00"),
        (Schedule(min="0", hour="0", mday="?", wday="MON"), "2026-01-01T00:00", "2026-01-05T00:00"),
        (Schedule(min="0", hour="0", mday="?", wday="2-6"), "2026-01-02T00:00", "2026-01-05T00:00"),
        (Schedule(min="0", hour="0", mday="?", wday="?"), "2026-01-01T00:00", "2026-01-02T00:00"),
        (Schedule(min="0", hour="0", mday="1", wday="*", mon="2"), "2026-01-01T00:00", "2026-02-01T00:00"),
    ],
)
def test_schedules(schedule: Schedule, after: str, due: str) -> None:
    cron, wrong = cron_of(schedule)
    assert (cron.next(at(after)), wrong) == (at(due), "")


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(mday="1", wday="2"),
        Schedule(mday="?", wday="6#3"),
        Schedule(mday="L"),
        Schedule(min="banana"),
        Schedule(mday="31", mon="2"),
        Schedule(min="99"),
        Schedule(hour=""),
    ],
)
def test_what_is_wrong_is_repaired_and_said(schedule: Schedule) -> None:
    cron, wrong = cron_of(schedule)
    assert cron.next(0.0) > 0 and (wrong or schedule.hour == "")
