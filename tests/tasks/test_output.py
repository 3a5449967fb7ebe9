"""What tasks write is kept, also when it comes after they were given up."""

from collections.abc import AsyncIterable

import pytest

from skep.base.caller import SYSTEM
from skep.storage.blobs import BlobInfo
from skep.tasks.model import Chunk, Task
from skep.tasks.service import archive_once
from tests.tasks.house import Effects, Engine, command, hand


@pytest.fixture
async def ended(engine: Engine) -> Task:
    async with hand(engine, command=Effects().on("wrk_1")):
        context = await engine.ended(await engine.submit(command("a")))
        return (await engine.tasks(context))["a"]


async def write(engine: Engine, task: Task, *numbers: int) -> None:
    """As its worker does."""
    chunks = [Chunk(task.id, task.context, task.attempt, n, "stdout", 1.0, b"%d" % n) for n in numbers]
    await engine.core.tasks.write(chunks, task.worker)


async def shown(engine: Engine, task: Task) -> list[int]:
    return [chunk.n for chunk in await engine.core.tasks.output(SYSTEM, task.id)]


async def archived(engine: Engine) -> None:
    while await archive_once(engine.db, engine.core.tasks._blobs):
        pass


async def test_what_comes_after_the_archive_is_put_to_the_rest(engine: Engine, ended: Task) -> None:
    await write(engine, ended, 1, 2)
    await archived(engine)
    await write(engine, ended, 2, 3)
    assert await shown(engine, ended) == [1, 2, 3]
    await archived(engine)
    assert await shown(engine, ended) == [1, 2, 3]
    assert not await engine.sql("SELECT n FROM output")
    (row,) = await engine.sql("SELECT blob FROM archive")
    assert [blob.id async for blob in engine.core.tasks._blobs.list()] == [row["blob"]]


@pytest.mark.parametrize("other", [False, True])
async def test_what_comes_while_it_is_archived_is_not_lost(
    engine: Engine, ended: Task, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another coordinator archives it at the same moment, sees the piece, and is faster."""
    blobs, late = engine.core.tasks._blobs, [3]
    put = blobs.put

    async def slow(chunks: AsyncIterable[bytes]) -> BlobInfo:
        while late:
            await write(engine, ended, late.pop())
            if other:
                await archive_once(engine.db, blobs)
        return await put(chunks)

    monkeypatch.setattr(blobs, "put", slow)
    await write(engine, ended, 1, 2)
    await archived(engine)
    assert await shown(engine, ended) == [1, 2, 3]
