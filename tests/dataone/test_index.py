"""The index of records over each database and the real engine: what is found, by whom, and what follows from what."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from skep.dataone.fields import KIND
from skep.dataone.index import WORK, RecordIndex
from skep.dataone.record import geohash
from skep.dataone.store import Store
from skep.dataone.types import AccessPolicy, AccessRule
from skep.engines.db.base import Database
from skep.engines.records.base import Ask, OneOf, Record, Value
from skep.engines.records.folder import FolderRecords
from skep.errors import BadInput, NeedsToken
from skep.model.caller import SYSTEM, Caller
from skep.testing.documents import ISO, ORE, eml, iso, resource_map
from skep.testing.offers import lose_object, put_objects
from tests.rooms.house import MovedClock

from .library import ANYBODY, BOB, RITA, Library, library_of
from .objects import NODE, meta_of


@pytest.fixture
async def library(store: Store, tmp_path: Path) -> AsyncIterator[Library]:
    async with library_of(store, tmp_path) as found:
        yield found


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


async def test_a_map_with_impossible_names_holds_up_nothing(library: Library) -> None:
    """A database may not hold such names, nor an index of it so long ones: then nothing would be indexed any more."""
    letters = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(3_000))
    for n, name in enumerate(("d%00", letters)):
        body = resource_map(f"map{n}", {"meta": ["data", "other"]})
        body = body.replace(b"dcterms:identifier", b"dcterms:other").replace(
            b"resolve/other", f"resolve/{name}".encode()
        )
        await library.put(f"map{n}", body, format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert await library.field("meta", "resourceMap") == ["map0", "map1"]
    assert await library.field("meta", "documents") == ["data"]


async def test_the_longest_names_belong_together(library: Library) -> None:
    """Of letters that take three bytes; what takes four, and no database may hold, is a map that says nothing."""
    random = Random(1)
    map, meta, data = ("".join(chr(random.randrange(0x4E00, 0x9FFF)) for _ in range(800)) for _ in range(3))
    body = resource_map(map, {meta: [data]})
    await library.put(map, body, format_id=ORE)
    await library.put(meta, eml("Meta"))
    await library.put(data, b"1", format_id="text/csv")
    large = "".join(
        chr(random.randrange(0x1F300, 0x1F5FF)) + chr(random.randrange(0x20000, 0x2A000)) for _ in range(400)
    )
    await library.put("large", resource_map("large", {large: ["other"]}), format_id=ORE)
    await library.put("other", b"2", format_id="text/csv")
    await library.index.drain()
    assert await library.found(f'documents:"{data}" resourceMap:"{map}"') == [meta]
    assert await library.found("formatId:text*") == sorted([data, "other"])


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


@pytest.mark.parametrize("order", [["map", "meta", "data"], ["data", "meta", "map"], ["meta", "map", "data"]])
async def test_packages_hold_together_in_any_order(library: Library, order: list[str]) -> None:
    for name in order:
        if name == "map":
            await library.put("map", resource_map("map", {"meta": ["data"]}), format_id=ORE)
        elif name == "meta":
            await library.put("meta", eml("Meta"))
        else:
            await library.put("data", b"1", format_id="text/csv")
        await library.index.drain()
    assert await library.field("meta", "documents") == ["data"]
    assert await library.field("data", "isDocumentedBy") == ["meta"]
    assert [await library.field(pid, "resourceMap") for pid in ("meta", "data", "map")] == [["map"], ["map"], []]


async def test_a_large_package_holds_together_though_half_of_it_comes_later(library: Library) -> None:
    members = [f"d{n:04}" for n in range(2_500)]
    metas = [meta_of(pid, b"1", format_id="text/csv") for pid in members]
    await put_objects(library.store, metas[:1_200], None, NODE)
    await library.put("map", resource_map("map", {"meta": members}), format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert (await library.index.search(ANYBODY, Ask("resourceMap:map isDocumentedBy:meta"))).total == 1_200
    await put_objects(library.store, metas[1_200:], None, NODE)
    await library.index.drain()
    assert (await library.index.search(ANYBODY, Ask("resourceMap:map isDocumentedBy:meta"))).total == 2_500
    assert await library.field("meta", "documents") == members


async def test_provenance_is_found_from_both_sides(library: Library) -> None:
    said = b"""<rdf:Description rdf:about="https://cn.example.org/cn/v2/resolve/new"
    xmlns:prov="http://www.w3.org/ns/prov#"><prov:wasDerivedFrom
    rdf:resource="https://cn.example.org/cn/v2/resolve/old"/></rdf:Description></rdf:RDF>"""
    body = resource_map("map", {"meta": ["new", "old"]}).replace(b"</rdf:RDF>", said)
    await library.put("map", body, format_id=ORE)
    for pid in ("new", "old"):
        await library.put(pid, pid.encode(), format_id="text/csv")
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert await library.found("prov_wasDerivedFrom:old") == ["new"]
    assert await library.found("prov_hasDerivations:new") == ["meta", "old"]
    assert await library.found("prov_hasSources:old") == ["meta"]


async def test_an_archived_map_is_taken_out_again(library: Library) -> None:
    body = resource_map("map", {"meta": ["data"]})
    await library.put("map", body, format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    await library.put("map", body, format_id=ORE, archived=True, date_sys_metadata_modified=2_000)
    await library.index.drain()
    assert await library.field("meta", "resourceMap") == []
    assert await library.field("meta", "documents") == []


async def test_a_newer_map_takes_the_place_of_the_old_one(library: Library) -> None:
    await library.put("data", b"1", format_id="text/csv")
    await library.put("dropped", b"2", format_id="text/csv")
    await library.put("map1", resource_map("map1", {"meta": ["data", "dropped"]}), format_id=ORE)
    await library.put("map2", resource_map("map2", {"meta": ["data"]}), format_id=ORE, obsoletes="map1")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["map2"]
    assert await library.field("dropped", "resourceMap") == ["map1"]


@pytest.mark.parametrize("archived", [False, True])
async def test_a_newer_map_counts_though_one_between_does_not(library: Library, archived: bool) -> None:
    """It has not all members, or is archived: of what the first and the last say, only the last counts."""
    between = {"meta": ["data"]} if archived else {"meta": ["other"]}
    await library.put("m1", resource_map("m1", {"meta": ["data"]}), format_id=ORE)
    await library.put("m2", resource_map("m2", between), format_id=ORE, obsoletes="m1", archived=archived or None)
    await library.put("m3", resource_map("m3", {"meta": ["data"]}), format_id=ORE, obsoletes="m2")
    await library.put("meta", eml("Meta"))
    await library.put("data", b"1", format_id="text/csv")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["m3"]
    assert await library.field("meta", "resourceMap") == ["m3"]


async def test_maps_in_a_circle_all_count(library: Library) -> None:
    """None of them is the newer one, so nothing says that one does not count."""
    body = {"meta": ["data"]}
    for pid, after in (("m1", "m2"), ("m2", "m1"), ("m3", "m1"), ("self", "self")):
        await library.put(pid, resource_map(pid, body), format_id=ORE, obsoleted_by=after)
    await library.put("data", b"1", format_id="text/csv")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["m1", "m2", "self"]


async def test_a_map_may_name_a_series(library: Library) -> None:
    await library.put("map", resource_map("map", {"sid": ["data"]}), format_id=ORE)
    await library.put("v1", eml("One"), series_id="sid", date_uploaded=1)
    await library.put("v2", eml("Two"), series_id="sid", obsoletes="v1", date_uploaded=2)
    await library.index.drain()
    assert await library.field("v2", "documents") == ["data"]
    assert await library.field("v1", "documents") == []


async def test_what_is_said_of_a_series_goes_to_its_newest_version(library: Library) -> None:
    """Also where no version says which other one it follows."""
    await library.put("map", resource_map("map", {"sid": ["data"]}), format_id=ORE)
    await library.put("v1", eml("One"), series_id="sid", date_uploaded=1_000)
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v1"]
    await library.put("v2", eml("Two"), series_id="sid", date_uploaded=2_000)
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v2"]
    assert await lose_object(library.store, "v2", NODE) == "gone"
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v1"]


async def test_the_older_version_says_what_came_after_it(library: Library) -> None:
    """Also where only the newer one, or only the older one, tells of it. Other nodes are not believed."""
    await library.put("v1", eml("One"))
    await library.put("w2", eml("Two of another chain"))
    await library.index.drain()
    await library.put("v2", eml("Two"), obsoletes="v1")
    await library.put("w1", eml("One of another chain"), obsoleted_by="w2")
    await library.put("theft", eml("Theft"), obsoletes="v2", authoritative_member_node="urn:node:Other")
    await library.index.drain()
    assert await library.found("-obsoletedBy:*") == ["theft", "v2", "w2"]
    assert await library.field("v1", "obsoletedBy") == "v2"
    assert await library.field("w2", "obsoletes") == "w1"


async def test_the_audit_repairs_what_the_index_lost(library: Library) -> None:
    for pid in ("a", "b", "c"):
        await library.put(pid, eml(pid.upper()))
    await library.index.drain()
    assert await library.index.audit() == 0
    await library.store.worked(WORK, await library.store.backlog(WORK, 100))
    await library.put("d", eml("D"))
    await library.store.worked(WORK, await library.store.backlog(WORK, 100))  # lost on the way
    assert await library.index.audit() == 1
    await library.index.drain()
    assert await library.found("") == ["a", "b", "c", "d"]


async def test_the_audit_repairs_whatever_side_was_damaged(library: Library) -> None:
    for pid in ("a", "b", "c"):
        await library.put(pid, eml(pid.upper()))
    await library.index.drain()
    values: dict[str, Value] = {"title": "Nothing", "place": 7, "state": "0"}
    for harm in (
        library.records.delete(KIND.name, OneOf("id", ["a"])),
        library.records.put(KIND.name, [Record("b", values)]),
        library.records.put(KIND.name, [Record("stranger", values)]),
        library.store.db.write(lambda tx: tx.rows("UPDATE sysmeta SET serial = serial + 1 WHERE pid = 'c'")),
        library.store.db.write(lambda tx: tx.rows("DELETE FROM sysmeta WHERE pid = 'c'")),
    ):
        await harm
        assert await library.index.audit() == 1
        await library.index.drain()
        assert await library.index.audit() == 0
    assert await library.found("") == ["a", "b"] == await library.found("title:*")
    assert [one.id for one in (await library.records.search(KIND.name, Ask())).records if one.id not in "ab"] == []


async def test_a_damaged_engine_is_filled_anew(library: Library, tmp_path: Path) -> None:
    for pid in ("a", "b"):
        await library.put(pid, eml(pid.upper()))
    await library.index.drain()
    for file in (tmp_path / "records" / KIND.name / "index").glob("*.store"):
        file.write_bytes(bytes(len(file.read_bytes())))
    await library.index.check(SYSTEM)
    await library.index.drain()
    assert await library.found("title:*") == ["a", "b"]
    assert await library.index.audit() == 0


async def test_indexing_waits_for_enough_or_long_enough(library: Library, clock: MovedClock) -> None:
    following = asyncio.create_task(library.index.follow())
    try:
        await library.put("a", eml("A"))
        await asyncio.sleep(0.3)
        assert await library.found("") == []
        await library.put("b", eml("B"))
        await library.put("c", eml("C"))
        await _until(library, ["a", "b", "c"])
        await library.put("d", eml("D"))
        await asyncio.sleep(0.3)
        assert await library.found("") == ["a", "b", "c"]
        clock.time += 31.0
        await library.index.bulk(SYSTEM, False)  # somebody looks
        await _until(library, ["a", "b", "c", "d"])
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def test_bulk_load_defers_and_leaving_it_drains(library: Library, clock: MovedClock) -> None:
    following = asyncio.create_task(library.index.follow())
    try:
        await library.index.bulk(SYSTEM, True)
        for pid in "abcdef":
            await library.put(pid, eml(pid))
        clock.time += 1000.0
        await asyncio.sleep(0.3)
        standing = await library.index.standing()
        assert (standing.waiting, standing.bulk) == (6, True)
        await library.index.bulk(SYSTEM, False)
        await _until(library, list("abcdef"))
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def _until(library: Library, pids: list[str]) -> None:
    async with asyncio.timeout(30):
        while await library.found("") != pids:
            await asyncio.sleep(0.02)


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


async def test_several_processes_have_an_index_each(
    database: Database, clock: MovedClock, library: Library, tmp_path: Path
) -> None:
    """One database, two folders: whoever comes to the backlog first takes nothing away from the other."""
    engines = [FolderRecords(tmp_path / name) for name in ("one", "two")]
    given = {"after": 1, "within": 0.05, "base": ""}
    indexes = [
        RecordIndex(database, clock, library.store, engine, name=f"process {n}", **given)  # type: ignore[arg-type]
        for n, engine in enumerate(engines)
    ]
    for index in indexes:
        await index.start()
    following = [asyncio.create_task(index.follow()) for index in indexes]
    try:
        await library.put("map", resource_map("map", {"meta": ["data"]}), format_id=ORE)
        await library.put("meta", eml("Meta"))
        await library.put("data", b"1", format_id="text/csv")
        for index in indexes:
            async with asyncio.timeout(30):
                while (await index.search(ANYBODY, Ask("documents:data resourceMap:map"))).total != 1:
                    assert not any(task.done() for task in following), following
                    await asyncio.sleep(0.02)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        for engine in engines:
            await engine.close()


async def test_a_process_that_was_away_for_long_misses_nothing(
    database: Database, clock: MovedClock, library: Library, tmp_path: Path
) -> None:
    """Its records were right when it went: what maps said of these objects since then is in none of their states."""
    given = {"after": 1, "within": 0.05, "base": ""}

    async def working(name: str, text: str) -> None:
        """Until this index finds something, as long as it is followed."""
        engine = FolderRecords(tmp_path / name)
        index = RecordIndex(database, clock, library.store, engine, name=name, **given)  # type: ignore[arg-type]
        await index.start()
        following = asyncio.create_task(index.follow())
        try:
            async with asyncio.timeout(10):
                while (await index.search(ANYBODY, Ask(text))).total != 1 or (await index.standing()).waiting:
                    assert not following.done(), following
                    await asyncio.sleep(0.02)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await engine.close()

    await library.put("meta", eml("Meta"))
    await working("away", "id:meta")
    clock.time += 2 * 86_400
    await library.put("map", resource_map("map", {"meta": ["data"]}), format_id=ORE)
    await working("here", "id:meta resourceMap:map")
    await working("away", "id:meta resourceMap:map")
