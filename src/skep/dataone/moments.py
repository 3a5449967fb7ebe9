"""Dates as Solr reads and writes them. Pure."""

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta

from skep.dataone.xml import read_time
from skep.errors import BadInput

_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_SECONDS = (0, 0, 86_400, 3_600, 60, 1)
_STEP = re.compile(rf"([+-](?=\d)|/)(\d{{0,6}})({'|'.join(_UNITS)})S?")
_MOMENT = re.compile(rf"(?P<from>NOW|\d{{4}}-\d\d-\d\dT[\d:.]+Z)(?P<steps>(?:{_STEP.pattern})*)")


def instant(seconds: float) -> str:
    """As Solr writes it."""
    date = datetime.fromtimestamp(seconds, UTC)
    return date.isoformat(timespec="milliseconds" if date.microsecond else "seconds").replace("+00:00", "Z").zfill(20)


def moment(text: str, now: float) -> str:
    """`NOW-1MONTH/DAY` as a date; what is none stays."""
    found = _MOMENT.fullmatch(text)
    if not found or not (found["steps"] or found["from"] == "NOW"):
        return text
    try:
        return instant(_stepped(now if found["from"] == "NOW" else read_time(found["from"]) / 1000, found["steps"]))
    except (ValueError, OverflowError):
        raise BadInput(f"{text[:40]!r} is no date") from None


def _stepped(seconds: float, steps: str) -> float:
    """`+1MONTH` goes on, `/DAY` back to the beginning of it."""
    date = datetime.fromtimestamp(seconds, UTC)
    for way, count, unit in _STEP.findall(steps):
        place = _UNITS.index(unit)
        if way == "/":
            parts = (*date.timetuple()[: place + 1], 1, 1)[: max(3, place + 1)]
            date = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year to second
        elif place > 1:
            date += timedelta(seconds=int(way + count) * _SECONDS[place])
        else:
            months = date.year * 12 + date.month - 1 + int(way + count) * (1 if place else 12)
            year, month = months // 12, months % 12 + 1
            date = date.replace(year=year, month=month, day=min(date.day, monthrange(year, month)[1]))
    return date.timestamp()
