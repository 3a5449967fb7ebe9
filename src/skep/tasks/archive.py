"""Output of attempts that are over: one blob for each instead of rows, kept until their context expires."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database, Row, Tx, Value, struct_of
from skep.errors import NotFound
from skep.model.task import Chunk

_EVERY_SECONDS = 10.0
#: unless somebody else was faster
_ARCHIVE = """
    INSERT INTO archive (task, attempt, blob) VALUES (:task, :attempt, :blob)
    ON CONFLICT (task, attempt) DO UPDATE SET blob = excluded.blob WHERE archive.blob = :before RETURNING blob
"""
_decode = msgspec.msgpack.Decoder(list[Chunk]).decode


async def keep(db: Database, blobs: Blobs) -> None:
    """For ever."""
    while True:
        while await archive_once(db, blobs) or await forget_once(db, blobs):
            continue
        await asyncio.sleep(_EVERY_SECONDS)


async def archive_once(db: Database, blobs: Blobs) -> bool:
    """One attempt; False when none is left. The blob is durable before the rows go. What a task that was given up
    writes while it is being stopped comes after that, and is put to the rest."""
    rows = await db.read(
        "SELECT output.task, output.attempt, task.context, archive.blob FROM output JOIN task ON task.id = output.task "
        "LEFT JOIN archive ON archive.task = output.task AND archive.attempt = output.attempt "
        "WHERE task.ended_at IS NOT NULL OR output.attempt < task.attempt LIMIT 1"
    )
    if not rows:
        return False
    before = rows[0]["blob"] or ""
    own: dict[str, Value] = {"task": rows[0]["task"], "attempt": rows[0]["attempt"]}
    pieces = await db.read("SELECT * FROM output WHERE task = :task AND attempt = :attempt ORDER BY n", **own)
    chunks = [chunk_of(row, rows[0]["context"]) for row in pieces]
    whole = joined(await load(db, blobs, rows[0]["task"], rows[0]["attempt"]) if before else [], chunks)
    blob = (await blobs.put(_once(msgspec.msgpack.encode(whole)))).id
    read: list[dict[str, Value]] = [{**own, "n": chunk.n} for chunk in chunks]

    async def work(tx: Tx) -> bool:
        done = bool(await tx.rows(_ARCHIVE, **own, blob=blob, before=before))
        if done:
            await tx.many("DELETE FROM output WHERE task = :task AND attempt = :attempt AND n = :n", read)
        return done

    if await db.write(work) and before not in ("", blob):
        await blobs.delete(before)
    return True


def joined(kept: Iterable[Chunk], written: Iterable[Chunk]) -> list[Chunk]:
    """Each piece once, in their order."""
    pieces = {chunk.n: chunk for chunk in (*kept, *written)}
    return [pieces[n] for n in sorted(pieces)]


def chunk_of(row: Row, context: str) -> Chunk:
    return struct_of(Chunk, row, context=context, body=bytes(row["body"]))


async def load(db: Database, blobs: Blobs, task: str, attempt: int) -> list[Chunk]:
    """Everything the attempt wrote, if it was archived."""
    sql = "SELECT blob FROM archive WHERE task = :task AND attempt = :attempt"
    missed = ""
    while (rows := await db.read(sql, task=task, attempt=attempt)) and rows[0]["blob"] != missed:
        try:
            return _decode(b"".join([piece async for piece in blobs.open(rows[0]["blob"])]))
        except NotFound:
            missed = rows[0]["blob"]  # another may have come in its place
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
