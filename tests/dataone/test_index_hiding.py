"""What fewer may find than before: no answer counts it, whenever it is indexed again. Over each engine of records."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.dataone import resource_maps, tables
from skep.dataone.index import RecordIndex
from skep.dataone.store import Store
from skep.dataone.tables import WAIT, meta_row, narrows
from skep.dataone.types import AccessPolicy, AccessRule
from skep.processes.engines import find
from skep.storage.database import Database, Tx, insert
from skep.storage.records.base import Ask, Page, Record, Records
from skep.storage.records.tantivy_index import FolderRecords
from skep.testing.documents import ORE, eml, resource_map
from tests.rooms.house import MovedClock
from tests.support.dataone_objects import lose_object, put_object

from .cn_house import served
from .library import ANYBODY, BOB, RITA, Library, library_of
from .objects import NODE, PUBLIC, meta_of

BOBS = AccessPolicy((AccessRule(("bob",), ("read",)),))
BODY = eml("Treasure")
LATER = {"date_sys_metadata_modified": 2_000}
_prefixes = (f"hiding{n}" for n in itertools.count())


@pytest.fixture(params=["folder", "opensearch"])
async def library(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> AsyncIterator[Library]:
    engine: Records | None = None
    if request.param == "opensearch":
        url = f"opensearch://{request.getfixturevalue('opensearch').address}/{next(_prefixes)}"
        engine = await find("records", url)(url, data=tmp_path)
    async with library_of(store, tmp_path, engine) as found:
        yield found


async def counted(index: RecordIndex, text: str = "treasure") -> tuple[int, list[str]]:
    """How many strangers find, and which identifiers they see in a facet, without asking for any record."""
    page: Page = await index.search(ANYBODY, Ask(text, limit=0, facets=("identifier",), facet_size=100))
    return page.total, sorted(str(value) for value, _ in page.facets["identifier"])


async def test_nobody_counts_what_became_less_visible_in_bulk_load_mode(library: Library) -> None:
    for pid in ("archived", "private", "deleted", "stays", "bobs"):
        await library.put(pid, BODY, access_policy=BOBS if pid == "bobs" else PUBLIC)
    await library.index.drain()
    assert await counted(library.index) == (4, ["archived", "deleted", "private", "stays"])
    await library.index.bulk(SYSTEM, True)
    await library.put("archived", BODY, archived=True, **LATER)
    assert await counted(library.index) == (3, ["deleted", "private", "stays"])
    await library.put("private", BODY, access_policy=None, **LATER)
    assert await counted(library.index) == (2, ["deleted", "stays"])
    assert await library.found("treasure", BOB) == ["bobs", "deleted", "stays"]
    await library.put("bobs", BODY, access_policy=None, **LATER)
    assert await library.found("treasure", BOB) == ["deleted", "stays"]
    assert await lose_object(library.store, "deleted", NODE) == "gone"
    assert await counted(library.index) == (1, ["stays"])
    await library.index.bulk(SYSTEM, False)
    await library.index.drain()
    assert await counted(library.index) == (1, ["stays"])
    assert await library.found("treasure", RITA) == ["bobs", "private", "stays"]


async def test_pages_neither_repeat_nor_miss_what_is_left(library: Library) -> None:
    for n in range(8):
        await library.put(f"dup.{n}", BODY)
    await library.index.drain()
    await library.index.bulk(SYSTEM, True)
    for n in (1, 2):
        await library.put(f"dup.{n}", BODY, access_policy=None, **LATER)
    pages = [await library.index.search(ANYBODY, Ask(sort="identifier", start=at, limit=5)) for at in (0, 5)]
    assert [[one.id for one in page.records] for page in pages] == [[f"dup.{n}" for n in (0, 3, 4, 5, 6)], ["dup.7"]]
    assert [page.total for page in pages] == [6, 6]


async def test_answers_of_the_coordinating_node_count_what_is_left(tmp_path: Path) -> None:
    async with served(tmp_path) as cn:
        for n in range(8):
            await cn.put(f"dup.{n}", eml(f"Treasure {n}"))
        await cn.core.dataone.index.drain()
        await cn.core.dataone.index.bulk(SYSTEM, True)
        for n in (1, 2):
            meta = meta_of(f"dup.{n}", eml(f"Treasure {n}"), access_policy=None, **LATER)
            assert await put_object(cn.core.dataone.store, meta, None, NODE) == "update"
        counts = {"facet": "true", "facet.field": "titlestr", "facet.query": "title:treasure"}
        titles = [f"Treasure {n}" for n in (0, 3, 4, 5, 6, 7)]
        found = await cn.solr(q="treasure", rows="0", **counts)
        assert found["response"]["numFound"] == 6
        assert found["facet_counts"]["facet_queries"] == {"title:treasure": 6}
        assert sorted(found["facet_counts"]["facet_fields"]["titlestr"][::2]) == titles
        found = await cn.solr(q="treasure", rows="5", sort="identifier asc")
        assert [one["id"] for one in found["response"]["docs"]] == [f"dup.{n}" for n in (0, 3, 4, 5, 6)]
        async with cn.client() as client:
            listed = (await client.get("/cn/v2/search/solr/treasure", params={"count": "5"})).text
            assert 'count="5" start="0" total="6"' in listed
            hits = (await client.get("/api/v1/search", params={"q": "type:record treasure"})).json()
            assert len(hits["records"]) == 6


async def test_what_private_maps_say_is_for_their_readers(library: Library) -> None:
    await library.put("map", resource_map("map", {"open": ["bobs", "ritas"]}), format_id=ORE, access_policy=BOBS)
    await library.put("open", BODY)
    await library.put("bobs", b"1", format_id="text/csv", access_policy=BOBS)
    await library.put("ritas", b"2", format_id="text/csv", access_policy=None)
    await library.index.drain()
    assert await library.found("resourceMap:map or documents:*") == []
    assert (await library.index.search(ANYBODY, Ask(facets=("resourceMap",)))).facets == {"resourceMap": []}
    assert await library.field("open", "resourceMap") == [] == await library.field("open", "documents")
    assert await library.found("resourceMap:map", BOB) == ["bobs"]
    assert await library.found("resourceMap:map isDocumentedBy:open", RITA) == ["bobs", "ritas"]


async def test_other_readers_of_a_map_are_other_readers_of_what_it_says(library: Library) -> None:
    body = resource_map("map", {"sid": ["data"]})
    await library.put("map", body, format_id=ORE)
    await library.put("meta", BODY, series_id="sid")
    await library.put("data", b"1", format_id="text/csv")
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["data", "meta"]
    await library.index.bulk(SYSTEM, True)
    await library.put("map", body, format_id=ORE, access_policy=None, **LATER)
    page = await library.index.search(ANYBODY, Ask("resourceMap:map", limit=0, facets=("resourceMap", "documents")))
    assert (page.total, page.facets) == (0, {"resourceMap": [], "documents": []})
    await library.index.bulk(SYSTEM, False)
    await library.index.drain()
    assert await library.found("") == ["data", "meta"]
    assert await library.found("resourceMap:map or isDocumentedBy:*") == []
    await library.put("map", body, format_id=ORE, date_sys_metadata_modified=3_000)
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["data", "meta"]


async def test_a_version_that_becomes_private_is_not_named_by_the_one_before_it(library: Library) -> None:
    """Where only the newer one, or the older one, tells of the link."""
    await library.put("old", BODY)
    await library.put("new", eml("Treasure 2"), obsoletes="old", date_uploaded=2_000)
    await library.put("first", BODY, obsoleted_by="second")
    await library.put("second", eml("Treasure 2"), date_uploaded=2_000)
    await library.index.drain()
    assert await library.found("obsoletedBy:new") == ["old"]
    assert await library.found("obsoletes:first") == ["second"]
    await library.index.bulk(SYSTEM, True)
    await library.put("new", eml("Treasure 2"), obsoletes="old", date_uploaded=2_000, access_policy=None, **LATER)
    await library.put("first", BODY, obsoleted_by="second", access_policy=None, **LATER)
    page = await library.index.search(ANYBODY, Ask(limit=0, facets=("obsoletedBy", "obsoletes")))
    assert page.facets == {"obsoletedBy": [], "obsoletes": []}
    await library.index.bulk(SYSTEM, False)
    await library.index.drain()
    assert await library.found("") == ["old", "second"]
    assert await library.found("obsoletedBy:* or obsoletes:*") == []


class Slow(FolderRecords):
    """Waits before it puts anything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, kind: str, records: Sequence[Record]) -> None:
        self.reached.set()
        await self.go.wait()
        await super().put(kind, records)


async def test_what_was_read_before_it_became_private_is_not_put_after_that(store: Store, tmp_path: Path) -> None:
    """Whether the record was about to be written then, or its document about to be read."""
    engine = Slow(tmp_path / "slow")
    async with library_of(store, tmp_path, engine) as library:
        await library.put("a", BODY)
        draining = asyncio.create_task(library.index.drain())
        await engine.reached.wait()
        await library.index.bulk(SYSTEM, True)
        await library.put("a", BODY, access_policy=None, **LATER)
        asking = asyncio.create_task(counted(library.index))
        assert not (await asyncio.wait({asking}, timeout=0.3))[0], "what is being put must be withdrawn as well"
        engine.go.set()
        assert await asking == (0, [])
        await draining
        assert await counted(library.index) == (0, [])


async def test_a_document_that_is_read_while_it_becomes_private_is_not_put(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with library_of(store, tmp_path) as library:
        await library.put("a", BODY)
        related = library.index.maps.relations

        async def slowly(objects: list[object]) -> object:
            monkeypatch.undo()
            await library.index.bulk(SYSTEM, True)
            await library.put("a", BODY, access_policy=None, **LATER)
            assert await counted(library.index) == (0, [])
            return await related(objects)  # type: ignore[arg-type]

        monkeypatch.setattr(library.index.maps, "relations", slowly)
        await library.index.drain()
        assert await counted(library.index) == (0, [])
        assert (await library.index.standing()).waiting == 1


async def test_what_becomes_less_visible_twice_is_withdrawn(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an answer is made: it has another number when it is looked for."""
    await library.put("p", BODY, access_policy=PUBLIC)
    await library.index.drain()
    await library.put("p", BODY, access_policy=BOBS, **LATER)
    withdrawals = library.index._withdrawals
    newest, times = withdrawals._newest, itertools.count()

    async def once_more(since: int) -> int:
        found = await newest(since)
        if not next(times):
            await library.put("p", BODY, access_policy=None, date_sys_metadata_modified=3_000)
        return found

    monkeypatch.setattr(withdrawals, "_newest", once_more)
    assert await counted(library.index) == (0, [])


async def test_every_server_withdraws_what_any_of_them_settled(
    database: Database, clock: MovedClock, store: Store, tmp_path: Path
) -> None:
    """Also one that comes back later, before it answers anything."""
    async with library_of(store, tmp_path) as library:
        engines = [FolderRecords(tmp_path / name) for name in ("one", "two")]
        for pid in ("a", "b"):
            await library.put(pid, BODY)
        waiting = await store.backlog("index", 10)
        indexes = [_server(database, clock, store, engine, n) for n, engine in enumerate(engines)]
        for n, index in enumerate(indexes):
            await index.start()
            await store.again(f"index:server {n}", [pid for pid, _ in waiting])
            await index.drain()
            assert await counted(index) == (2, ["a", "b"])
        await engines.pop().close()
        await indexes[0].bulk(SYSTEM, True)
        await library.put("a", BODY, access_policy=None, **LATER)
        assert await counted(indexes[0]) == (1, ["b"])
        engines.append(FolderRecords(tmp_path / "two"))
        again = _server(database, clock, store, engines[1], 1)
        await again.start()
        assert await counted(again) == (1, ["b"])
        for engine in engines:
            await engine.close()


def _server(db: Database, clock: MovedClock, store: Store, engine: Records, n: int) -> RecordIndex:
    return RecordIndex(db, clock, store, engine, after=1, within=1.0, base="", name=f"server {n}")


async def test_an_upgrade_looks_at_what_waits_and_at_private_maps(database: Database) -> None:
    await database.migrate("dataone", tables.STEPS[:3])
    await database.migrate("resource_map", resource_maps.STEPS[:1])

    async def work(tx: Tx) -> None:
        for pid in ("open", "hidden", "map"):
            row = meta_row(meta_of(pid, access_policy=PUBLIC if pid == "open" else None), "DATA", "", 0.0)
            del row["said_by"]  # nobody knew it then
            await insert(tx, "sysmeta", **row, deleted=0)
        await tx.many(WAIT, [{"work": "index:server 1", "pid": pid, "now": 1.0} for pid in ("open", "hidden", "gone")])
        await insert(tx, "resource_map", map="map", state="")

    await database.write(work)
    await database.migrate("dataone", tables.STEPS)
    await database.migrate("resource_map", resource_maps.STEPS)
    assert [row["pid"] for row in await database.read("SELECT pid FROM sysmeta WHERE narrowed > 0")] == ["hidden"]
    assert [row["pid"] for row in await database.read("SELECT pid FROM backlog WHERE work = 'index'")] == ["map"]


def test_what_narrows() -> None:
    both = AccessPolicy((AccessRule(("bob", "eve"), ("read",)),))
    public, bobs, shared, rights = (meta_of("a", access_policy=one) for one in (PUBLIC, BOBS, both, None))
    for old, new in ((public, bobs), (bobs, rights), (shared, bobs), (public, meta_of("a", archived=True))):
        assert narrows(old, new)
    for old, new in ((bobs, public), (rights, bobs), (bobs, shared), (public, public), (rights, rights)):
        assert not narrows(old, new)
