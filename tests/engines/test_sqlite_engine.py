"""What only the embedded database has: the writer thread, what reaches the disk and when, trouble with its file."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import pytest

from skep.base.errors import Busy, Conflict, Damaged, NoSpace, SkepError, Unavailable
from skep.storage import sqlite
from skep.storage.database import Tx
from skep.storage.sqlite import Durability, Sqlite, open_memory, open_sqlite


class Disk(apsw.VFS):
    """The real files, watched, and failing when told to."""

    def __init__(self) -> None:
        self.syncs = 0
        self.full = False
        self.broken = False
        super().__init__("watched", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "DiskFile":  # noqa: N802
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.syncs += 1
        if self._disk.broken:
            raise apsw.IOError("broken")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.full:
            raise apsw.FullError("full")
        super().xWrite(data, offset)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[[Durability], Awaitable[Sqlite]]]:
    databases: list[Sqlite] = []

    async def open_one(durability: Durability = "full") -> Sqlite:
        db = await open_sqlite("sqlite:", data=tmp_path, durability=durability)
        databases.append(db)
        await db.migrate("test", ["CREATE TABLE t (n BIGINT PRIMARY KEY, body BYTEA)"])
        return db

    yield open_one
    for db in databases:
        await db.close()


async def put(db: Sqlite, n: int, *, runtime: bool = False, body: bytes = b"") -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("INSERT INTO t (n, body) VALUES (:n, :body)", n=n, body=body)

    await db.write(work, runtime=runtime)


async def stored(db: Sqlite) -> list[int]:
    return [row["n"] for row in await db.read("SELECT n FROM t ORDER BY n")]


Open = Callable[[Durability], Awaitable[Sqlite]]


@pytest.mark.parametrize(
    ("durability", "runtime", "synced"),
    [("full", False, True), ("full", True, True), ("delayed", False, True), ("delayed", True, False)],
)
async def test_what_is_on_disk_when_a_write_returns(
    disk: Disk, opened: Open, durability: Durability, runtime: bool, synced: bool
) -> None:
    db = await opened(durability)
    for n in range(3):
        before = disk.syncs
        await put(db, n, runtime=runtime)
        assert (disk.syncs > before) is synced


async def test_a_group_with_one_lasting_write_is_synced(disk: Disk, opened: Open) -> None:
    db = await opened("delayed")
    before = disk.syncs
    await asyncio.gather(*(put(db, n, runtime=n != 5) for n in range(10)))
    assert disk.syncs > before


async def test_many_writers_share_a_sync(disk: Disk, opened: Open) -> None:
    db, gate = await opened("full"), threading.Event()

    async def held(tx: Tx) -> None:
        gate.wait()  # until all have come

    before = disk.syncs
    writers = [asyncio.create_task(write) for write in (db.write(held), *(put(db, n) for n in range(200)))]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*writers)
    assert 1 <= disk.syncs - before <= 5


async def test_a_full_disk_fails_the_write_and_nothing_else(disk: Disk, opened: Open) -> None:
    db = await opened("full")
    await put(db, 1)
    disk.full = True
    for answer in await asyncio.gather(put(db, 2), put(db, 3, body=bytes(60_000_000)), return_exceptions=True):
        assert isinstance(answer, NoSpace)
    assert await stored(db) == [1]
    disk.full = False
    await put(db, 4)
    assert await stored(db) == [1, 4]


async def test_a_failed_commit_fails_its_group_and_the_next_works(disk: Disk, opened: Open) -> None:
    db = await opened("full")
    await put(db, 1)
    async with db.listen("bell") as bell:

        async def ringing(tx: Tx) -> None:
            await tx.rows("INSERT INTO t (n) VALUES (3)")
            tx.ring("bell")

        disk.broken = True
        answers = await asyncio.gather(put(db, 1), put(db, 2), db.write(ringing), return_exceptions=True)
        disk.broken = False
        assert isinstance(answers[0], Conflict)
        assert isinstance(answers[1], Unavailable)
        assert isinstance(answers[2], Unavailable)
        assert not await bell.wait(0)
    await put(db, 5)
    assert await stored(db) == [1, 5]


CHILD = """
import asyncio, pathlib, sys
from skep.storage.sqlite import open_sqlite
async def main():
    db = await open_sqlite("sqlite:", data=pathlib.Path(sys.argv[1]), durability=sys.argv[2])
    await db.migrate("test", ["CREATE TABLE t (n BIGINT PRIMARY KEY, body BYTEA)"])
    async def write(first):
        for n in range(first, 10**9, 8):
            async def work(tx):
                await tx.rows("INSERT INTO t (n) VALUES (:n)", n=n)
            await db.write(work, runtime=True)
            print(n, flush=True)
    await asyncio.gather(*(write(first) for first in range(8)))
asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["full", "delayed"])
async def test_a_killed_process_loses_nothing_it_answered(tmp_path: Path, opened: Open, durability: Durability) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path), durability]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        answered = [int(child.stdout.readline()) for _ in range(300)]
        child.kill()
        answered += [int(line) for line in child.stdout if line.endswith("\n")]
    assert set(answered) <= set(await stored(await opened(durability)))


async def test_a_work_that_waits_for_something_else_is_told(opened: Open) -> None:
    db = await opened("full")

    async def strays(tx: Tx, seconds: float) -> None:
        await tx.rows("INSERT INTO t (n) VALUES (1)")
        await asyncio.sleep(seconds)

    for seconds in (0, 0.01):
        with pytest.raises(SkepError, match="other than its transaction"):
            await db.write(lambda tx, seconds=seconds: strays(tx, seconds))  # type: ignore[misc]
    assert await stored(db) == []


@pytest.mark.parametrize("patience", [0.01, 600.0])
async def test_a_full_queue_makes_writers_wait_and_then_refuses(tmp_path: Path, patience: float) -> None:
    db = Sqlite(tmp_path / "small.db", full="FULL", runtime="FULL", capacity=2, patience=patience)
    await db.migrate("test", ["CREATE TABLE t (n BIGINT PRIMARY KEY, body BYTEA)"])
    gate = threading.Event()

    async def slow(tx: Tx) -> None:
        gate.wait()

    writers = [asyncio.create_task(db.write(slow)) for _ in range(2)]
    await asyncio.sleep(0)
    if patience < 1:
        with pytest.raises(Busy):
            await put(db, 1)
        gate.set()
        await asyncio.gather(*writers)
    else:
        waiting = [asyncio.create_task(put(db, n)) for n in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # its place goes to the next
        gate.set()
        await asyncio.gather(*writers, *waiting[1:])
        assert await stored(db) == list(range(1, 50))
    await put(db, 1000)
    await db.close()


async def test_readers_cannot_write(opened: Open) -> None:
    db = await opened("full")
    with pytest.raises(SkepError, match="readonly"):
        await db.read("INSERT INTO t (n) VALUES (1) RETURNING n")
    assert await stored(db) == []


async def test_paths(tmp_path: Path) -> None:
    for url, path in [
        ("sqlite:", tmp_path / "skep.db"),
        ("sqlite:deep/er.db", tmp_path / "deep" / "er.db"),
        (f"sqlite:{tmp_path}/own.db", tmp_path / "own.db"),
        (f"sqlite://{tmp_path}/as it%20is.db", tmp_path / "as it%20is.db"),
    ]:
        db = await open_sqlite(url, data=tmp_path, durability="full")
        await db.close()
        assert path.exists()


async def test_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    db = await open_memory("memory:", data=tmp_path / "unused", durability="full")
    await db.migrate("test", ["CREATE TABLE t (n BIGINT PRIMARY KEY)"])
    assert len(list(tmp_path.iterdir())) == 1
    await db.close()
    assert list(tmp_path.iterdir()) == []


async def test_what_was_asked_for_before_close_is_written(opened: Open) -> None:
    db = await opened("full")
    last = asyncio.create_task(put(db, 1))
    await asyncio.sleep(0)
    await db.close()
    await last
    await db.close()
    assert await stored(await opened("full")) == [1]


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "skep.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(Damaged, match=r"skep\.db"):
        await open_sqlite("sqlite:", data=tmp_path, durability="full")


async def test_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "skep.db").mkdir()
    with pytest.raises(Unavailable, match=r"skep\.db"):
        await open_sqlite("sqlite:", data=tmp_path, durability="full")
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="file"):
        await open_sqlite("sqlite:", data=tmp_path / "file", durability="full")


async def test_another_process_holding_the_file(tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MILLISECONDS", 1)
    db = await opened("full")
    other = apsw.Connection(str(tmp_path / "skep.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="another process"):
        await put(db, 1)
    other.execute("ROLLBACK")
    other.close()
    await put(db, 2)
    assert await stored(db) == [2]
