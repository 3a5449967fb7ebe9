"""Topics: what Skep tells. This room keeps readers' places; messages themselves live in the Log engine."""

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from skep.engines.db.base import Bell, Database, Tx
from skep.engines.log.base import TxLog
from skep.errors import BadInput
from skep.model.caller import Caller
from skep.model.topic import Draft, Message, Part

#: every move of every entry of every source; key = source id, id = change id
CHANGES = "skep.changes"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_STEPS = [
    """
    CREATE TABLE place (
        reader TEXT NOT NULL, topic TEXT NOT NULL, partition BIGINT NOT NULL, next_offset BIGINT NOT NULL,
        PRIMARY KEY (reader, topic, partition)
    )
    """
]


class Topics:
    def __init__(self, db: Database, log: TxLog) -> None:
        self._db = db
        self._log = log

    async def start(self) -> None:
        await self._db.migrate("topics", _STEPS)

    async def read(self, caller: Caller, topic: str, offset: int, limit: int) -> list[Message]:
        caller.need("read")
        # changes of private sources are told on the same topic as all others
        if topic.startswith("skep."):
            caller.need("private")
        return await self._log.read(Part(_valid(topic)), max(offset, 0), min(max(limit, 1), 1000))

    async def tell(self, tx: Tx, topic: str, drafts: Sequence[Draft], now: float) -> None:
        """Append within the caller's transaction, so that what is stored is told and what is told is stored."""
        await self._log.append_in(tx, Part(topic), drafts, now)

    async def place(self, reader: str, topic: str) -> int:
        """Where `reader` goes on; one who never read starts at the beginning."""
        rows = await self._db.read(
            "SELECT next_offset FROM place WHERE reader = :reader AND topic = :topic AND partition = 0",
            reader=reader,
            topic=topic,
        )
        return int(rows[0]["next_offset"]) if rows else 0

    async def unread(self, reader: str, topic: str, limit: int) -> list[Message]:
        return await self._log.read(Part(topic), await self.place(reader, topic), limit)

    async def commit(self, tx: Tx, reader: str, topic: str, next_offset: int) -> None:
        await tx.rows(
            "INSERT INTO place (reader, topic, partition, next_offset) VALUES (:reader, :topic, 0, :next) "
            "ON CONFLICT (reader, topic, partition) DO UPDATE SET next_offset = excluded.next_offset "
            "WHERE place.next_offset < excluded.next_offset",
            reader=reader,
            topic=topic,
            next=next_offset,
        )

    def listen(self, topic: str) -> AbstractAsyncContextManager[Bell]:
        return self._log.listen(Part(topic))


def _valid(topic: str) -> str:
    if not _NAME.fullmatch(topic):
        raise BadInput(
            f"{topic[:60]!r} is not a topic name",
            hint="letters, digits, dot, dash and underscore, at most 200 characters",
        )
    return topic
