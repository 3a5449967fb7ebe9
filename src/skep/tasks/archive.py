"""Output of attempts that are over: one blob for each instead of rows, kept until their context expires."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database, Row, Tx, insert, struct_of
from skep.errors import NotFound
from skep.model.task import Chunk

_EVERY_SECONDS = 10.0
_decode = msgspec.msgpack.Decoder(list[Chunk]).decode


async def keep(db: Database, blobs: Blobs) -> None:
    """For ever."""
    while True:
        while await archive_once(db, blobs) or await forget_once(db, blobs):
            continue
        await asyncio.sleep(_EVERY_SECONDS)


async def archive_once(db: Database, blobs: Blobs) -> bool:
    """One attempt; False when none is left. The blob is durable before the rows go."""
    rows = await db.read(
        "SELECT output.task, output.attempt, task.context FROM output JOIN task ON task.id = output.task "
        "WHERE task.ended_at IS NOT NULL OR output.attempt < task.attempt LIMIT 1"
    )
    if not rows:
        return False
    task, attempt, context = rows[0]["task"], rows[0]["attempt"], rows[0]["context"]
    pieces = await db.read(
        "SELECT * FROM output WHERE task = :task AND attempt = :attempt ORDER BY n", task=task, attempt=attempt
    )
    chunks = [chunk_of(row, context) for row in pieces]
    blob = (await blobs.put(_once(msgspec.msgpack.encode(chunks)))).id

    async def work(tx: Tx) -> None:
        once = "ON CONFLICT (task, attempt) DO NOTHING"
        await insert(tx, "archive", once, task=task, attempt=attempt, blob=blob)
        await tx.rows("DELETE FROM output WHERE task = :task AND attempt = :attempt", task=task, attempt=attempt)

    await db.write(work)
    return True


def chunk_of(row: Row, context: str) -> Chunk:
    return struct_of(Chunk, row, context=context, body=bytes(row["body"]))


async def load(db: Database, blobs: Blobs, task: str, attempt: int) -> list[Chunk]:
    """Everything the attempt wrote, if it was archived."""
    rows = await db.read(
        "SELECT blob FROM archive WHERE task = :task AND attempt = :attempt", task=task, attempt=attempt
    )
    if not rows:
        return []
    try:
        return _decode(b"".join([piece async for piece in blobs.open(rows[0]["blob"])]))
    except NotFound:
        return []


async def forget_once(db: Database, blobs: Blobs) -> bool:
    """The output of one task that was removed."""
    rows = await db.read(
        "SELECT task, attempt, blob FROM archive WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.id = archive.task) "
        "LIMIT 1"
    )
    if not rows:
        return False
    row = rows[0]
    await blobs.delete(row["blob"])
    await db.write(
        lambda tx: tx.rows(
            "DELETE FROM archive WHERE task = :task AND attempt = :attempt", task=row["task"], attempt=row["attempt"]
        )
    )
    return True


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
