"""Many sources in one call, over each database."""

import pytest

from skep.base.answers import BulkItem
from skep.base.caller import SYSTEM, Caller
from skep.base.errors import TooLarge
from skep.sources.service import MOST, Bulk, BulkSource
from tests.rooms.house import WORKER_TOKEN, House

WRITER = Caller("writer", frozenset({"read", "write"}))


@pytest.fixture
def bulk(house: House) -> Bulk:
    return Bulk(house.db, house.clock, house.sources)


def fates(items: list[BulkItem]) -> list[str]:
    return [item.status for item in items]


async def test_each_url_has_its_own_fate(house: House, bulk: Bulk) -> None:
    known = (await house.sources.add(WRITER, "https://h.org/known", labels=["a"])).source
    hidden = (await house.sources.add(SYSTEM, "https://h.org/hidden", visibility="private")).source
    items = await bulk.take(
        WRITER,
        [
            BulkSource("https://h.org/new"),
            BulkSource("https://h.org/known.git/"),
            BulkSource("https://h.org/known", labels=("a",)),
            BulkSource("https://h.org/known", labels=("b", "b")),
            BulkSource("https://h.org/new", visibility="public"),
            BulkSource("ext::sh -c x"),
            BulkSource("https://user:hunter2@h.org/x"),
            BulkSource("/srv/git"),
            BulkSource("https://h.org/hidden"),
            BulkSource("https://h.org/x", labels=("",)),
            BulkSource("https://h.org/y", ref="no/such/source"),
        ],
    )
    assert fates(items) == ["added", "known", "known", "updated", "known", *["refused"] * 6]
    assert [item.id for item in items[1:4]] == [known.id] * 3
    assert items[4].id == items[0].id
    assert "hunter2" not in items[6].reason
    assert hidden.id not in str(items)
    assert (await house.sources.show(WRITER, known.id)).labels == ("b",)
    assert (await house.sources.show(WRITER, items[0].id)).state == "new"


async def test_another_url_keeps_the_source(house: House, bulk: Bulk) -> None:
    one, two = [(await house.sources.add(WRITER, f"https://h.org/{name}")).source for name in ("one", "two")]
    items = await bulk.take(
        WRITER,
        [
            BulkSource("https://h.org/two", ref=one.id),
            BulkSource("https://h.org/uno", ref="h.org/one", labels=("x",)),
            BulkSource("https://h.org/uno"),
            BulkSource("https://h.org/one"),
        ],
    )
    assert fates(items) == ["refused", "updated", "known", "added"]
    moved = await house.sources.show(WRITER, one.id)
    assert (moved.url, moved.name, moved.labels, moved.epoch) == ("https://h.org/uno", "h.org/uno", ("x",), one.epoch)
    assert items[3].id not in (one.id, two.id)


async def test_thousands_go_to_the_worker_in_order(house: House, bulk: Bulk) -> None:
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    items = await bulk.take(WRITER, [BulkSource(f"https://h.org/{n}") for n in range(2_500)])
    assert fates(items) == ["added"] * 2_500
    numbers = await house.db.read("SELECT number FROM source ORDER BY number")
    assert [row["number"] for row in numbers] == list(range(1, 2_501))
    ordered = await house.db.read("SELECT source FROM ordered WHERE member = 'wrk_1' AND kind = 'hold' ORDER BY n")
    assert [row["source"] for row in ordered] == [item.id for item in items]
    again = await bulk.take(WRITER, [BulkSource(f"https://h.org/{n}") for n in range(2_500)])
    assert fates(again) == ["known"] * 2_500
    assert (await house.sources.add(WRITER, "https://h.org/last")).source.number == 2_501


async def test_too_many_are_refused_as_a_whole(bulk: Bulk) -> None:
    with pytest.raises(TooLarge):
        await bulk.take(WRITER, [BulkSource("https://h.org/x")] * (MOST + 1))
