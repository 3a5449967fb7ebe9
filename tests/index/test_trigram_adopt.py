"""Deltas come in, tombstones and merges keep the rest true, and damage is noticed."""

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from skep.base.errors import NoSpace
from skep.search.query import parse
from skep.storage.code_index.base import Side
from skep.storage.code_index.model import Delta, Fence, ShardInfo, Tip
from skep.storage.code_index.trigram.candidates import Part
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.code_index.trigram.shard import FORMAT, Shard, seal
from skep.storage.database import Database, Tx
from tests.index.conftest import EVERYTHING, VISIBLE, Adopt, fence, find, make_delta

OLD = {b"a": b"apple one\n", b"b": b"banana\n", b"c": b"cherry\n"}


@pytest.fixture
def db(database: Database) -> Database:
    """The tables behave the same on every database."""
    return database


async def paths(searcher: TrigramSearcher, word: str) -> list[str]:
    return [hit.path for hit in await find(searcher, parse(word))]


async def test_one_changed_file_is_one_new_document(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(OLD)
    delta = await adopt({b"a": b"apple two\n"}, base="c1", gone=(b"a", b"c"))
    assert [info.documents for info in delta.shards] == [1]
    assert await paths(searcher, "apple") == ["a"]
    assert await paths(searcher, "one") == []
    assert await paths(searcher, "cherry") == []
    assert await paths(searcher, "banana") == ["b"]
    assert searcher.size().documents == 2
    standing = searcher.standing(1)
    assert standing and (standing.tips, standing.fetched_at) == ((Tip("main", "c2"),), 1000.0)
    assert searcher.indexed() == [("src_1", 1)]


async def test_everything_anew(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path) -> None:
    await adopt(OLD)
    await adopt(OLD, number=2)
    await adopt({b"z": b"apple three\n"})
    hits = await find(searcher, parse("apple or banana"))
    assert sorted((hit.source, hit.path) for hit in hits) == [(1, "z"), (2, "a"), (2, "b")]
    assert len(list((tmp_path / "index").iterdir())) == 2  # a shard without a living document is gone


async def test_twice_is_once(searcher: TrigramSearcher, tmp_path: Path) -> None:
    delta = make_delta(tmp_path / "x", OLD, commit="c1")
    assert await searcher.adopt(delta, fence())
    assert await searcher.adopt(delta, fence())
    empty = make_delta(tmp_path / "y", {}, commit="c2", base="c1", gone=(b"a",))
    assert empty.shards == ()
    assert await searcher.adopt(empty, fence())
    assert await searcher.adopt(empty, fence())
    assert searcher.size().documents == 2
    assert not await searcher.adopt(delta, fence())  # long ago


async def test_stale_deltas_change_nothing(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path) -> None:
    await adopt(OLD)
    assert await searcher.adopt(make_delta(tmp_path / "e", {b"d": b"date\n"}, commit="c9", base="c1"), fence(epoch=5))
    older = make_delta(tmp_path / "o", {b"n": b"nut\n"}, commit="c10", base="c9")
    assert not await searcher.adopt(older, fence(epoch=4))
    other_base = make_delta(tmp_path / "p", {b"n": b"nut\n"}, commit="c10", base="c1")
    assert not await searcher.adopt(other_base, fence(epoch=5))
    assert not await searcher.adopt(make_delta(tmp_path / "q", OLD, commit="x", base="c", number=3), fence(3))
    missing = make_delta(tmp_path / "r", {b"n": b"nut\n"}, commit="c11", base="c9")
    shutil.rmtree(tmp_path / "r")
    assert not await searcher.adopt(missing, fence(epoch=5))
    assert await paths(searcher, "nut") == []
    assert (await find(searcher, parse("date")))[0].path == "d"


async def test_a_watcher_sees_what_goes_and_what_comes(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path) -> None:
    await adopt({b"a": b"apple old\n", b"b": b"apple stays\n"})
    await adopt({b"a": b"apple of another\n"}, number=2)
    await searcher.db.migrate("watcher", ["CREATE TABLE seen (line TEXT PRIMARY KEY)"])

    async def watch(_delta: Delta, _fence: Fence, before: Side, after: Side) -> Callable[[Tx], Awaitable[None]]:
        sides = [[hit async for hit in side(parse("apple"), EVERYTHING)] for side in (before, after)]
        old, new = ({line.text for hit in hits if hit.path == "a" for line in hit.lines} for hits in sides)
        lines = [{"line": f"{before} -> {after}"} for before in old for after in new]

        async def also(tx: Tx) -> None:
            await tx.many("INSERT INTO seen (line) VALUES (:line)", lines)

        return also

    delta = make_delta(tmp_path / "n", {b"a": b"apple new\n"}, commit="c3", base="c1", gone=(b"a",))
    stale = msgspec.structs.replace(delta, base=(Tip("main", "c9"),))
    assert not await searcher.adopt(stale, fence(), watch)
    for _ in range(2):
        assert await searcher.adopt(delta, fence(), watch)
    assert [row["line"] for row in await searcher.db.read("SELECT line FROM seen")] == ["apple old -> apple new"]


async def test_a_delta_cannot_smuggle(searcher: TrigramSearcher, tmp_path: Path) -> None:
    """A shard's own number decides who may see it, so it must be the number of the delta's source."""
    delta = make_delta(tmp_path / "x", OLD, commit="c1", number=2)
    shards = delta.shards
    assert not await searcher.adopt(type(delta)("src_1", 1, (Tip("m", "c1"),), None, shards), Fence("src_1", 1, 0.0))
    outside = ShardInfo("../../escape", str(tmp_path / "x"), 1, 1)
    assert not await searcher.adopt(
        type(delta)("src_1", 1, (Tip("m", "c1"),), None, (outside,)), Fence("src_1", 1, 0.0)
    )
    assert await paths(searcher, "apple") == []
    assert list((tmp_path / "index").iterdir()) == []


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(NoSpace, match="no space left"):
        make_delta(tmp_path / "x", OLD, commit="c1")


async def test_drop(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(OLD)
    await adopt(OLD, number=2)
    await searcher.drop("src_1", 1)
    await searcher.drop("src_1", 1)
    assert [hit.source for hit in await find(searcher, parse("apple"))] == [2]
    assert searcher.standing(1) is None
    assert searcher.indexed() == [("src_2", 2)]


async def test_a_search_keeps_what_it_began_with(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(OLD)
    before = searcher.search(parse("apple"), VISIBLE, EVERYTHING)
    await adopt({b"a": b"apple two\n"})
    lines = [line.text async for hit in before for line in hit.lines]
    assert lines == ["apple one"]
    assert before.standing(1).commit == "c1"
    after = searcher.search(parse("apple"), VISIBLE, EVERYTHING)
    assert [hit.lines[0].text async for hit in after] == ["apple two"]
    assert after.standing(1).commit == "c2"


async def test_searches_during_adoptions_see_one_state(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """Every file of one commit holds the same number; a search must never see two."""
    names = [b"f%d" % n for n in range(5)]
    await adopt(dict.fromkeys(names, b"round 0\n"))
    done = asyncio.Event()
    seen: set[str] = set()

    async def look() -> None:
        while not done.is_set():
            lines = {line.text for hit in await find(searcher, parse("round")) for line in hit.lines}
            assert len(lines) == 1
            seen.update(lines)

    lookers = [asyncio.create_task(look()) for _ in range(3)]
    for nth in range(1, 15):
        await adopt(dict.fromkeys(names, b"round %d\n" % nth), base=f"c{nth}", gone=tuple(names))
        await searcher.merge_once()
    done.set()
    await asyncio.gather(*lookers)
    assert len(seen) > 1


async def test_merging_keeps_every_answer(searcher: TrigramSearcher, adopt: Adopt) -> None:
    for nth in range(1, 13):
        await adopt({b"f%d" % nth: b"word %d\n" % nth, b"g%d" % nth: b"other\n"}, number=nth)
    await adopt({b"f1": b"word changed\n"}, number=1, base="c1", gone=(b"f1",))
    expected = sorted((h.source, h.path, h.blob, h.lines) for h in await find(searcher, parse("word or other")))
    while await searcher.merge_once():
        pass
    assert searcher.size().shards < 9
    assert sorted((h.source, h.path, h.blob, h.lines) for h in await find(searcher, parse("word or other"))) == expected
    await searcher.drop("src_2", 2)
    assert len(await find(searcher, parse("word"))) == 11


async def test_what_dies_during_a_merge_is_dead_after_it(
    searcher: TrigramSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(1, 11):
        await adopt({b"f": b"word %d\n" % nth, b"g": b"stays\n"}, number=nth)
    merged = asyncio.get_running_loop().create_future()
    go_on = asyncio.Event()
    real = TrigramSearcher._adopt_merged

    async def paused(self: TrigramSearcher, chosen: list[Part], shards: tuple[ShardInfo, ...]) -> bool:
        if not merged.done():
            self._changing.release()
            merged.set_result(None)
            await go_on.wait()
            await self._changing.acquire()
        return await real(self, chosen, shards)

    monkeypatch.setattr(TrigramSearcher, "_adopt_merged", paused)
    merging = asyncio.create_task(searcher.merge_once())
    await merged
    await adopt({b"f": b"word new\n"}, number=3, base="c3", gone=(b"f",))
    go_on.set()
    assert await merging
    texts = [line.text for hit in await find(searcher, parse("word")) if hit.source == 3 for line in hit.lines]
    assert texts == ["word new"]
    assert len(await find(searcher, parse("stays"))) == 10


async def test_a_large_merge_runs_in_another_process(searcher: TrigramSearcher, adopt: Adopt) -> None:
    content = b"some words on a line\n" * 50_000
    await adopt({name: name + content for name in (b"a", b"b", b"c", b"d")})
    await adopt({}, base="c1", gone=(b"a", b"b"))
    assert await searcher.merge_once()
    assert searcher.size().documents == 2
    assert searcher.size().bytes == 2 * len(b"a" + content)
    assert not await searcher.merge_once()


async def reopened(searcher: TrigramSearcher, tmp_path: Path, db: Database) -> TrigramSearcher:
    await searcher.close()
    again = await open_trigram("file:", data=tmp_path, db=db)
    await again.start()
    return again


async def test_a_restart_changes_nothing(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path, db: Database) -> None:
    await adopt(OLD)
    await adopt({b"a": b"apple two\n"}, base="c1", gone=(b"a",))
    (tmp_path / "index" / "merging").mkdir()
    (tmp_path / "index" / "shd_00000000000000000000000000").mkdir()
    before = await find(searcher, parse("/a*/"))
    standing = searcher.standing(1)
    again = await reopened(searcher, tmp_path, db)
    assert await find(again, parse("/a*/")) == before
    assert again.standing(1) == standing
    assert len(list((tmp_path / "index").iterdir())) == 2
    await again.close()


@pytest.mark.parametrize("name", ["manifest", "index", "content", ""])
@pytest.mark.parametrize("how", ["cut", "flip", "remove"])
async def test_damage_is_set_aside_and_told(
    searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path, db: Database, name: str, how: str
) -> None:
    await adopt(OLD, number=1)
    delta = await adopt({b"x": b"apple xyz\n" * 2000}, number=2)
    folder = tmp_path / "index" / delta.shards[0].id
    harm(folder / name, how)
    again = await reopened(searcher, tmp_path, db)
    damage = await again.check()
    assert [one.shard for one in damage] == [delta.shards[0].id]
    assert await again.lost() == ["src_2"]
    assert again.standing(2) is None
    hits = again.search(parse("apple"), VISIBLE, EVERYTHING)
    assert [hit.path async for hit in hits] == ["a"]
    assert (hits.partial, hits.counted.exact) == (True, False), "until it is built anew"
    mine = again.search(parse("apple"), np.arange(2) == 1, EVERYTHING)
    assert [hit.path async for hit in mine] == ["a"]
    assert not mine.partial, "who may not see what is lost misses nothing"
    anew = make_delta(tmp_path / "anew", {b"x": b"apple xyz\n"}, commit="n1", number=2)
    assert await again.adopt(anew, fence(2))
    assert await again.lost() == []
    assert await again.check() == []
    hits = again.search(parse("apple"), VISIBLE, EVERYTHING)
    assert sorted([hit.path async for hit in hits]) == ["a", "x"]
    assert not hits.partial
    await again.close()


async def test_shards_of_another_format_are_built_anew_and_do_not_stay(
    searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await adopt(OLD, number=1)
    delta = await adopt({b"x": b"apple xyz\n"}, number=2)
    folder = tmp_path / "index" / delta.shards[0].id
    older = msgspec.structs.replace(Shard(folder).manifest, format=FORMAT - 1)
    (folder / "manifest").write_bytes(seal(older))
    again = await reopened(searcher, tmp_path, db)
    assert not folder.exists()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]  # nothing is wrong
    assert await again.lost() == ["src_2"]
    assert await paths(again, "apple") == ["a"]
    await again.close()


def harm(path: Path, how: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        return
    if how == "remove":
        path.unlink()
        return
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0x55
    path.write_bytes(body[: len(body) // 2] if how == "cut" else body)


@pytest.mark.parametrize(
    ("name", "how"),
    [("index", "cut"), ("content", "cut"), ("index", "flip"), ("content", "flip"), ("content", "end")],
)
async def test_a_search_notices_damage_and_the_others_answer(
    searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path, name: str, how: str
) -> None:
    """A shorter file is noticed before it is touched, wrong places when they lead nowhere, as does the
    end of the last line; wrong letters by `check`."""
    await adopt(OLD, number=1)
    delta = await adopt({b"x%d" % n: b"apple xyz\n" * 200 for n in range(20)}, number=2)
    path = tmp_path / "index" / delta.shards[0].id / name
    before = path.stat().st_size
    with path.open("r+b") as file:  # in place: what is mapped is what is harmed
        if how == "cut":
            file.truncate(before // 2)
        elif how == "end":
            file.seek(before - 1)
            file.write(b"z")
        else:
            sections = Shard(path.parent).manifest.sections
            file.seek(sections["offsets"].start if name == "index" else 0)
            file.write(b"\xff" * 80)
    hits = searcher.search(parse("apple"), VISIBLE, EVERYTHING)
    found = {hit.source async for hit in hits}
    assert 1 in found
    if how in ("cut", "end") or name == "index":
        assert found == {1}
        assert hits.partial
        await asyncio.gather(*searcher._losing)
    assert [one.shard for one in await searcher.check()] == [delta.shards[0].id]
    assert await searcher.lost() == ["src_2"]


async def test_damage_is_not_merged(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path) -> None:
    """What is merged has a checksum of its own, and nobody would find it any more."""
    await adopt(OLD, number=1)
    delta = await adopt({b"x%d" % n: b"apple xyz\n" * 200 for n in range(20)}, number=2)
    await adopt({}, number=2, base=delta.commit, gone=tuple(b"x%d" % n for n in range(9)))
    harm(tmp_path / "index" / delta.shards[0].id / "content", "flip")
    while await searcher.merge_once():
        pass
    assert await searcher.lost() == ["src_2"]


async def test_an_error_of_ours_costs_nobody_a_shard(
    searcher: TrigramSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    await adopt(OLD)

    def wrong(*_: object) -> None:
        raise IndexError("of ours")

    monkeypatch.setattr("skep.storage.code_index.trigram.search.Reading", wrong)
    with pytest.raises(IndexError, match="of ours"):
        await find(searcher, parse("apple"))
    assert await searcher.check() == []
