"""Where the log is not in the database of a transaction: what that tells is committed beside it, then carried over."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from skep.engines.db.base import Database, Tx, Value, insert
from skep.engines.log.base import Log
from skep.errors import SkepError
from skep.model.topic import Draft, Part

log = logging.getLogger(__name__)

STEPS = [
    """
    CREATE TABLE relay (
        n BIGINT PRIMARY KEY, topic TEXT NOT NULL, id TEXT NOT NULL, mkey TEXT NOT NULL, headers TEXT NOT NULL,
        body BYTEA NOT NULL
    );
    CREATE TABLE relay_count (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO relay_count (id, n) VALUES (0, 0)
    """
]
_CHANNEL = "relay"
_AT_ONCE = 500
_PAUSE_SECONDS = 5.0


async def put(tx: Tx, topic: str, drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        rows = await tx.rows("UPDATE relay_count SET n = n + 1 WHERE id = 0 RETURNING n")
        headers = msgspec.json.encode(draft.headers).decode()
        own: dict[str, Value] = {"id": draft.id, "mkey": draft.key, "headers": headers, "body": draft.body}
        await insert(tx, "relay", n=rows[0]["n"], topic=topic, **own)
    tx.ring(_CHANNEL)


async def carry(db: Database, target: Log, *, pause: float = _PAUSE_SECONDS) -> None:
    """For ever. A kill between append and delete repeats a message; its id tells."""
    async with db.listen(_CHANNEL) as bell:
        while True:
            try:
                moved = await step(db, target)
            except SkepError as error:
                log.warning("the relay waits for the log", extra={"reason": error.message})
                await asyncio.sleep(pause)
                continue
            if not moved:
                await bell.wait(30.0)


async def step(db: Database, target: Log) -> int:
    rows = await db.read("SELECT * FROM relay ORDER BY n LIMIT :limit", limit=_AT_ONCE)
    by_topic: dict[str, list[Draft]] = {}
    for row in rows:
        headers = msgspec.json.decode(row["headers"], type=dict[str, str])
        by_topic.setdefault(row["topic"], []).append(Draft(row["body"], row["id"], row["mkey"], headers))
    for topic, drafts in by_topic.items():
        await target.append(Part(topic), drafts)
    if rows:

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM relay WHERE n <= :n", n=rows[-1]["n"])

        await db.write(work)
    return len(rows)
