"""When records are made, and how an index is kept right: enough of them, bulk load, audits, several processes."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.dataone.index import WORK, RecordIndex
from skep.dataone.science_reader import KIND
from skep.storage.database import Database
from skep.storage.records.base import Ask, OneOf, Record, Value
from skep.storage.records.tantivy_index import FolderRecords
from skep.testing.documents import ORE, eml, resource_map
from tests.rooms.house import MovedClock

from .library import ANYBODY, Library


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


async def test_indexing_waits_for_enough_or_long_enough(
    library: Library, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained, drain = asyncio.Event(), library.index.drain

    async def told() -> None:
        await drain()
        drained.set()

    monkeypatch.setattr(library.index, "drain", told)
    following = asyncio.create_task(library.index.follow())
    try:
        await library.put("a", eml("A"))
        await asyncio.sleep(0.3)
        assert await library.found("") == []
        await library.put("b", eml("B"))
        await library.put("c", eml("C"))
        await _until(library, ["a", "b", "c"])
        await drained.wait()  # it would take what comes before its end
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
    async with asyncio.timeout(60):
        while await library.found("") != pids:
            await asyncio.sleep(0.02)


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
            async with asyncio.timeout(60):
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
            async with asyncio.timeout(60):
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
