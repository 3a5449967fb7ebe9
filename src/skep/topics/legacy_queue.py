"""The topic queue of old: producers and consumers are numbers, one message at a time, reading never removes.

A consumer's number belongs to one topic and starts at its beginning. Taking the next message moves the consumer's place
in one step, so two requests with one number never get the same message.
"""

from typing import Literal

from skep.base.caller import Caller
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.storage.database import Tx, insert, one_row
from skep.topics.api import Part, Post
from skep.topics.service import Topics

End = Literal["producer", "consumer"]


class Nothing(NotFound):
    """The consumer has read everything."""


class Queue:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._db = topics.db

    async def topics(self, caller: Caller) -> list[str]:
        """Topics made by users with one partition, in the order they were made."""
        caller.need("read")
        rows = await self._db.read(
            "SELECT name FROM topic WHERE owner = 'user' AND partitions = 1 ORDER BY created_at, name"
        )
        return [row["name"] for row in rows]

    async def create(self, caller: Caller, topic: str) -> None:
        await self._topics.create(caller, topic)

    async def register(self, caller: Caller, end: End, topic: str) -> int:
        """A new number, unique over all topics; a topic that is missing is made."""
        caller.need("write" if end == "producer" else "read")
        try:
            await self._single(topic)
        except NotFound:
            try:
                await self._topics.create(caller, topic)
            except Conflict:
                await self._single(topic)

        async def work(tx: Tx) -> int:
            rows = await tx.rows(
                "UPDATE queue_count SET next = next + 1 WHERE role = :role RETURNING next - 1 AS id", role=end
            )
            await insert(tx, "queue_end", role=end, id=rows[0]["id"], topic=topic)
            return int(rows[0]["id"])

        return await self._db.write(work)

    async def produce(self, caller: Caller, topic: str, producer: int, message: str) -> None:
        await self._check("producer", producer, topic)
        await self._topics.publish(caller, topic, [Post(message.encode("utf-8", "surrogatepass"))])

    async def consume(self, caller: Caller, topic: str, consumer: int) -> str:
        caller.need("read")
        await self._check("consumer", consumer, topic)
        while (offset := await self._take(topic, consumer)) is not None:
            found = await self._topics.log.read(Part(topic), offset, 1)
            # what was trimmed meanwhile is passed over
            if found and found[0].offset == offset:
                return found[0].body.decode("utf-8", "replace")
        raise Nothing(f"consumer {consumer} has read everything in {topic!r}")

    async def _take(self, topic: str, consumer: int) -> int | None:
        first, end = await self._topics.log.bounds(Part(topic))

        async def work(tx: Tx) -> int | None:
            rows = await tx.rows(
                "INSERT INTO place (reader, topic, partition, next_offset, generation) "
                "SELECT :reader, :topic, 0, :first + 1, 0 WHERE :first < :end "
                "ON CONFLICT (reader, topic, partition) DO UPDATE SET next_offset = "
                "CASE WHEN place.next_offset < :first THEN :first ELSE place.next_offset END + 1 "
                "WHERE place.next_offset < :end RETURNING next_offset - 1 AS offset_taken",
                reader=_reader(consumer),
                topic=topic,
                first=first,
                end=end,
            )
            return int(rows[0]["offset_taken"]) if rows else None

        return await self._db.write(work)

    async def size(self, caller: Caller, topic: str, consumer: int) -> int:
        """How many messages this consumer has not read."""
        caller.need("read")
        await self._check("consumer", consumer, topic)
        first, end = await self._topics.log.bounds(Part(topic))
        rows = await self._db.read(
            "SELECT next_offset FROM place WHERE reader = :reader AND topic = :topic AND partition = 0",
            reader=_reader(consumer),
            topic=topic,
        )
        return end - max(first, int(rows[0]["next_offset"]) if rows else first)

    async def _single(self, topic: str) -> None:
        found = await self._topics.find(topic)
        if found.owner != "user":
            raise NotAllowed(f"{topic!r} is Skep's own", hint="read it at /api/v1/topics")
        if found.partitions != 1:
            raise BadInput(f"topic {topic!r} has several partitions", hint="read it as a group: /api/v1/topics")

    async def _check(self, end: End, id: int, topic: str) -> None:
        await self._single(topic)
        rows = await self._db.read("SELECT topic FROM queue_end WHERE role = :role AND id = :id", role=end, id=id)
        row = one_row(rows, NotFound(f"there is no {end} {id}", hint=f"register one at /{end}/register"))
        if row["topic"] != topic:
            raise BadInput(f"{end} {id} is registered for {row['topic']!r}, not for {topic!r}")


def _reader(consumer: int) -> str:
    return f"consumer/{consumer}"
