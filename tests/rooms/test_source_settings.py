"""Settings of sources and labels, and losses that a person accepts."""

from typing import Any

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NotAllowed
from skep.config.settings import LabelSettings
from skep.rpc.messages import Looked
from skep.sources.model import Failure, SourceSettings
from skep.sources.service import Sources
from tests.rooms.house import WORKER_TOKEN, House

READER = Caller("reader", frozenset({"read"}))


async def test_what_is_named_changes_and_the_rest_stays(house: House) -> None:
    source = (await house.sources.add(SYSTEM, "https://example.org/a")).source
    assert source.settings == SourceSettings()
    await house.sources.update(SYSTEM, source.id, settings={"force_push": "ask", "poll_min": 5})
    await house.sources.update(SYSTEM, source.id, labels=["x"])
    changed = await house.sources.update(SYSTEM, source.id, settings={"refs": ["refs/heads/*"], "poll_min": None})
    assert changed.settings == SourceSettings(force_push="ask", refs=("refs/heads/*",))
    held = await house.sources.held(source.id)
    assert held is not None and held.settings == changed.settings


SENSELESS: list[dict[str, Any]] = [
    {"force_push": "never"},
    {"refs": "refs/heads/*"},
    {"refs": []},
    {"refs": ["--upload-pack=x"]},
    {"poll_min": 0},
    {"poll_min": 9, "poll_max": 3},
    {"priority": 501},
    {"priority": 0.5},
    {"colour": "red"},
]


async def test_what_makes_no_sense_is_refused(house: House, subtests: pytest.Subtests) -> None:
    for settings in SENSELESS:
        with subtests.test(ascii(settings)[:200]):
            source = (await house.sources.add(SYSTEM, "https://example.org/a")).source
            with pytest.raises(BadInput):
                await house.sources.update(SYSTEM, source.id, settings=settings)
            assert (await house.sources.show(SYSTEM, source.id)).settings == SourceSettings()


async def test_a_source_says_more_than_its_labels(house: House) -> None:
    labels = {
        "archive": LabelSettings(name="archive", force_push="ask", poll_max=60.0),
        "busy": LabelSettings(name="busy", poll_max=9.0),
    }
    house.sources.by_label = labels
    source = (await house.sources.add(SYSTEM, "https://example.org/a", labels=["busy", "archive", "none"])).source
    held = await house.sources.held(source.id)
    assert held is not None and held.settings == SourceSettings(force_push="ask", poll_max=60.0)
    await house.sources.update(SYSTEM, source.id, settings={"force_push": "follow"})
    held = await house.sources.held(source.id)
    assert held is not None and held.settings == SourceSettings(force_push="follow", poll_max=60.0)
    bad = Sources(house.db, house.clock, house.fleet, house.sources._kinds, {"x": LabelSettings(name="x", refs=("-",))})
    with pytest.raises(BadInput):
        await bad.start()


async def test_the_loss_that_is_asked_about_is_the_one_accepted(house: House) -> None:
    source = (await house.sources.add(SYSTEM, "https://example.org/a")).source
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    with pytest.raises(Conflict, match="asks for nothing"):
        await house.sources.accept(SYSTEM, source.id)
    failure = Failure("emptied", "lost 9 of 10", loss="emptied:1")
    await house.intake.failed(Looked(source.id, 1, house.clock.now(), 0.0), failure, 1)
    asking = await house.sources.show(SYSTEM, source.id)
    assert (asking.state, asking.failure) == ("asking", failure)
    with pytest.raises(NotAllowed):
        await house.sources.accept(READER, source.id)
    await house.sources.accept(SYSTEM, source.id)
    held = await house.sources.held(source.id)
    assert held is not None and held.accepted == "emptied:1"
