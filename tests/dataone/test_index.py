"""The index of records over each database and the real engine: what is found, by whom, and what follows from what."""

from pathlib import Path

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, NeedsToken
from skep.dataone.record import geohash
from skep.dataone.types import AccessPolicy, AccessRule
from skep.storage.records.base import Ask
from skep.testing.documents import ISO, ORE, eml, iso, resource_map

from .library import ANYBODY, BOB, RITA, Library


async def test_documents_are_found_by_what_they_say(library: Library) -> None:
    await library.put("a", eml("Snow on the mountain"))
    await library.put("b", iso("Currents"), format_id=ISO)
    await library.put("d", b"1,2", format_id="text/csv")
    await library.index.drain()
    assert await library.found("mountain") == ["a"]
    assert await library.found("title:currents") == ["b"]
    assert await library.found("formatType:DATA") == ["d"]
    assert await library.found("beginDate:[1998 TO 2000]") == ["a"]
    assert await library.found("northBoundCoord:[50 TO 60]") == ["b"]
    assert await library.found("keywordsText:core") == ["a"]
    assert await library.found('keywords:"ice core"') == ["a"]
    assert await library.field("a", "dataUrl") == "https://skep.example/cn/v2/resolve/a"
    assert (await library.index.standing()).waiting == 0


async def test_a_document_that_cannot_be_read_is_found_by_its_system_metadata(library: Library) -> None:
    await library.put("broken", b"<eml")
    await library.put("bad", iso("Currents", box={"northBoundLatitude": "north"}), format_id=ISO)
    await library.index.drain()
    assert await library.found("rightsHolder:rita") == ["bad", "broken"]
    assert "no XML" in str(await library.field("broken", "note"))
    assert await library.found("title:currents note:north*") == ["bad"]
    assert "northBoundCoord" in str(await library.field("bad", "note"))


async def test_a_date_beyond_all_years_costs_itself(library: Library) -> None:
    body = eml("Meta").replace(b"<calendarDate>1999<", b"<calendarDate>0001-01-01T00:00:00+14:00<")
    await library.put("a", body.replace(b"2003-07-14", b"9999-12-31T23:59:59.9999999Z"))
    await library.index.drain()
    assert await library.found("title:meta") == ["a"]
    assert "beginDate" in str(await library.field("a", "note"))


async def test_bytes_that_are_lost_hold_up_nothing(library: Library, tmp_path: Path) -> None:
    """What is known of an object is found though its document is gone from the disk, and others are indexed."""
    await library.put("lost", eml("Lost"))
    await library.put("map", resource_map("map", {"lost": ["data"]}), format_id=ORE)
    for file in [one for one in (tmp_path / "blobs").rglob("*") if one.is_file()]:
        file.unlink()
    await library.put("there", eml("There"))
    await library.index.drain()
    assert await library.found("rightsHolder:rita") == ["lost", "map", "there"]
    assert await library.found("title:*") == ["there"]


async def test_only_who_may_read_finds(library: Library) -> None:
    await library.put("secret", eml("Hidden treasure"), access_policy=AccessPolicy((AccessRule(("bob",), ("write",)),)))
    await library.put("open", eml("Open treasure"))
    await library.index.drain()
    assert await library.found("treasure") == ["open"]
    assert await library.found("treasure", BOB) == ["open", "secret"]
    assert await library.found("treasure", RITA) == ["open", "secret"]
    assert await library.found("treasure", SYSTEM) == ["open", "secret"]
    assert await library.found("treasure", Caller("eve", frozenset({"read"}))) == ["open"]
    page = await library.index.search(ANYBODY, Ask("treasure", facets=("rightsHolder",)))
    assert (page.total, page.facets) == (1, {"rightsHolder": [("rita", 1)]})
    with pytest.raises(NeedsToken):
        await library.index.search(Caller("nobody", frozenset(), known=False), Ask())


async def test_what_becomes_private_is_hidden_before_it_is_indexed_again(library: Library) -> None:
    body = eml("Treasure")
    await library.put("a", body)
    await library.index.drain()
    await library.put("a", body, access_policy=None, date_sys_metadata_modified=2_000)
    assert await library.found("treasure") == []
    await library.index.drain()
    assert await library.found("treasure") == []
    assert await library.found("treasure", RITA) == ["a"]


async def test_archived_objects_leave(library: Library) -> None:
    body = eml("Old")
    await library.put("a", body)
    await library.index.drain()
    await library.put("a", body, archived=True, date_sys_metadata_modified=2_000)
    assert await library.found("old") == []
    await library.index.drain()
    assert await library.found("", SYSTEM) == []


async def test_the_hidden_fields_are_hidden(library: Library) -> None:
    await library.put("a", eml("A"))
    await library.index.drain()
    (one,) = (await library.index.search(ANYBODY, Ask())).records
    assert not {"readers", "state"} & one.values.keys()


@pytest.mark.parametrize(
    ("latitude", "longitude", "expected"),
    [
        (57.64911, 10.40744, "u4pruydqq"),
        (42.605, -5.603, "ezs42s000"),
        (90, 180, "zzzzzzzzz"),
        (-90, -180, "000000000"),
    ],
)
def test_geohashes(latitude: float, longitude: float, expected: str) -> None:
    assert geohash(latitude, longitude) == expected


async def test_records_of_the_search(library: Library) -> None:
    for n in range(3):
        await library.put(f"p{n}", eml(f"Glacier {n}"))
    await library.index.drain()
    first = await library.index.find(ANYBODY, "glacier", 2, "")
    rest = await library.index.find(ANYBODY, "glacier", 2, first.next_page)
    assert sorted(one.name for one in first.records + rest.records) == ["Glacier 0", "Glacier 1", "Glacier 2"]
    assert (first.total, rest.next_page) == (3, "")
    for page in ("x", "9" * 5_000):
        with pytest.raises(BadInput, match="page token"):
            await library.index.find(ANYBODY, "glacier", 2, page)
