"""Topics: a durable log that Skep tells on and that anybody may publish to and read from.

Messages live in the Log engine; this room keeps which topics there are and, with `groups` and `queue`, who has read
how far.
"""

import asyncio
import logging
import re
import zlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress

import msgspec

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, SkepError, TooLarge
from skep.storage.database import Bell, Database, Row, Tx, Value, insert, inserting, one_row, struct_of, update
from skep.storage.topic_log import Log, TxLog
from skep.topics.api import Draft, Message, Part, Place, Post, Posted, Standing, Topic

# Partitions of a topic: which of them a message goes to, and where in one of them a reader begins.


def part_of(topic: Topic, partition: int) -> Part:
    if not 0 <= partition < topic.partitions:
        raise BadInput(f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}, not {partition}")
    return Part(topic.name, partition)


def choose(topic: Topic, post: Post, turn: int) -> int:
    """A given partition, else by key, else `turn`."""
    if post.partition is not None:
        return part_of(topic, post.partition).partition
    return spread(topic, post.key, turn)


def spread(topic: Topic, key: str, turn: int) -> int:
    """What has the same key meets itself in the same partition, also when it is repeated; else they take turns."""
    return (zlib.crc32(key.encode("utf-8", "surrogatepass")) if key else turn) % topic.partitions


async def resolve(log: Log, part: Part, to: str) -> int:
    """`beginning`, `end`, `offset:N` or `time:SECONDS`. An offset below the edge is left as it is: whoever reads there
    is told."""
    word, _, value = to.partition(":")
    first, end = await log.bounds(part)
    match word:
        case "beginning":
            return first
        case "end":
            return end
        case "offset" if value.isdecimal():
            return min(int(value), end)
        case "time":
            with suppress(ValueError):
                return await offset_at(log, part, float(value))
    raise BadInput(f"{to!r} is no place in a topic", hint="beginning, end, offset:N or time:SECONDS")


async def offset_at(log: Log, part: Part, at: float) -> int:
    """The first message not older than `at`, by halving: times do not fall along a partition."""
    low, high = await log.bounds(part)
    while low < high:
        middle = (low + high) // 2
        found = await log.read(part, middle, 1)
        if found and found[0].at < at:
            low = middle + 1
        else:
            high = middle
    return low


# Where the log is not in the database of a transaction: what that tells is committed beside it, then carried over.

log = logging.getLogger(__name__)

RELAY_STEPS = [
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


# The tables of topics and readers.

TABLES_STEPS = [
    """
    CREATE TABLE topic (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, partitions BIGINT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        retain_seconds DOUBLE PRECISION, retain_bytes BIGINT
    );
    CREATE TABLE place (
        reader TEXT NOT NULL, topic TEXT NOT NULL, partition BIGINT NOT NULL, next_offset BIGINT NOT NULL,
        member TEXT, generation BIGINT NOT NULL, PRIMARY KEY (reader, topic, partition)
    );
    CREATE INDEX place_topic ON place (topic);
    CREATE TABLE reader_member (
        reader TEXT NOT NULL, topic TEXT NOT NULL, member TEXT NOT NULL, until DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (reader, topic, member)
    );
    CREATE TABLE queue_end (role TEXT NOT NULL, id BIGINT NOT NULL, topic TEXT NOT NULL, PRIMARY KEY (role, id));
    CREATE TABLE queue_count (role TEXT PRIMARY KEY, next BIGINT NOT NULL);
    INSERT INTO queue_count (role, next) VALUES ('producer', 0), ('consumer', 0)
    """
]

_PLACE = inserting(
    "place",
    ("reader", "topic", "partition", "next_offset", "generation"),
    "ON CONFLICT (reader, topic, partition)",
)
#: a place that is there stays as it is
FIRST_PLACE = f"{_PLACE} DO NOTHING"
#: what follows says when it moves
MOVE_PLACE = f"{_PLACE} DO UPDATE SET next_offset = excluded.next_offset"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_WORDS = "letters, digits, dot, dash and underscore, at most 200 characters, a letter or digit first"


def valid_name(name: str, what: str = "topic") -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name[:60]!r} is not a name for a {what}", hint=_WORDS)
    return name


def topic_of(row: Row) -> Topic:
    return struct_of(Topic, row)


#: every move of every entry of every source; key = source id, id = change id
CHANGES = "skep.changes"
#: a source is searchable at another commit
INDEXED = "skep.indexed"
#: tasks moved from state to state
TASKS = "skep.tasks"
#: workers came and went
WORKERS = "skep.workers"
#: sources that began or ceased to fail
FAILURES = "skep.failures"
#: what newly matches a saved search
SEARCHES = "skep.searches"
#: commits that moved a benchmark's series; key = source id, id = step id
STEPS = "skep.steps"
OWN = (CHANGES, INDEXED, TASKS, WORKERS, FAILURES, SEARCHES, STEPS)

MOST_PARTITIONS = 1024
#: rung when topics are made, changed or removed
_CATALOGUE = "topics"
_NEW = "ON CONFLICT (name) DO NOTHING RETURNING name"


class Topics:
    def __init__(self, db: Database, log: Log, clock: Clock, message_limit: int) -> None:
        self.db = db
        self.log = log
        self.clock = clock
        self._limit = message_limit
        self._known: dict[str, Topic] = {}
        self._turn = 0

    async def start(self) -> None:
        await self.db.migrate("topics", TABLES_STEPS)
        await self.db.migrate("relay", RELAY_STEPS)
        now = self.clock.now()

        async def work(tx: Tx) -> None:
            for name in OWN:
                await insert(tx, "topic", _NEW, name=name, owner="skep", partitions=1, created_at=now)

        await self.db.write(work)

    async def follow(self) -> None:
        """Forget what is remembered of topics when another process changed them."""
        async with self.db.listen(_CATALOGUE) as bell:
            while True:
                await bell.wait(60.0)
                self._known.clear()

    # which topics there are

    async def create(
        self,
        caller: Caller,
        name: str,
        *,
        partitions: int = 1,
        retain_seconds: float | None = None,
        retain_bytes: int | None = None,
    ) -> Topic:
        caller.need("write")
        _own(valid_name(name))
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise BadInput(f"a topic has 1 to {MOST_PARTITIONS} partitions, not {partitions}")
        _retention(retain_seconds, retain_bytes)
        now = self.clock.now()

        async def work(tx: Tx) -> bool:
            kept: dict[str, Value] = {"retain_seconds": retain_seconds, "retain_bytes": retain_bytes}
            row: dict[str, Value] = {"name": name, "owner": "user", "partitions": partitions, "created_at": now}
            made = await insert(tx, "topic", _NEW, **row, **kept)
            if made:
                await note(tx, now, caller, "topic.create", name)
            return bool(made)

        if not await self.db.write(work):
            raise Conflict(f"topic {name!r} exists already", hint="publish to it, or choose another name")
        return await self.find(name)

    async def update(
        self, caller: Caller, name: str, *, retain_seconds: float | None, retain_bytes: int | None
    ) -> Topic:
        """Set what is kept; None keeps for ever."""
        caller.need("admin" if name in OWN else "write")
        _retention(retain_seconds, retain_bytes)
        await self.find(name)

        async def work(tx: Tx) -> None:
            await update(tx, "topic", "name", name=name, retain_seconds=retain_seconds, retain_bytes=retain_bytes)
            await note(tx, self.clock.now(), caller, "topic.update", name)
            tx.ring(_CATALOGUE)

        await self.db.write(work)
        self._known.pop(name, None)
        return await self.find(name)

    async def show(self, caller: Caller, name: str) -> tuple[Topic, list[Standing]]:
        caller.need("read")
        topic = await self.find(name)
        return topic, [await self._standing(Part(name, partition)) for partition in range(topic.partitions)]

    async def edges(self, caller: Caller, name: str, partition: int = 0) -> tuple[int, int]:
        """First kept offset of a partition, and the next to be given."""
        caller.need("read")
        return await self.log.bounds(await self.part(name, partition))

    async def _standing(self, part: Part) -> Standing:
        first, end = await self.log.bounds(part)
        return Standing(part.partition, first, end, await self.log.size(part))

    async def find(self, name: str) -> Topic:
        """From memory where possible: publishing asks for it each time."""
        known = self._known.get(name)
        if known is None:
            rows = await self.db.read("SELECT * FROM topic WHERE name = :name", name=valid_name(name))
            missing = NotFound(f"there is no topic {name!r}", hint="`skep topic list` shows those there are")
            known = self._known[name] = topic_of(one_row(rows, missing))
        return known

    async def trim(self, caller: Caller, name: str, partition: int, before: int) -> Standing:
        caller.need("admin" if name in OWN else "write")
        part = await self.part(name, partition)
        await self.log.trim(part, before)
        await self.db.write(lambda tx: note(tx, self.clock.now(), caller, "topic.trim", f"{name}/{partition}"))
        return await self._standing(part)

    # publishing and reading

    async def publish(
        self, caller: Caller, name: str, posts: Sequence[Post], *, producer: str = "", sequence: int = 0
    ) -> list[Posted]:
        """Durable on return. With `producer`, a batch repeated with the same `sequence` is stored once."""
        caller.need("write")
        _own(name)
        topic = self._known.get(name) or await self.find(name)
        drafts: dict[int, list[Draft]] = {}
        order: list[int] = []
        self._turn += 1
        # those without a key stay together, so that a batch is atomic where it can be
        turn = spread(topic, f"{producer}/{sequence}" if producer else "", self._turn + len(posts))
        for n, post in enumerate(posts):
            if len(post.body) > self._limit:
                raise TooLarge(f"a message has at most {self._limit} bytes, not {len(post.body)}")
            partition = choose(topic, post, turn)
            id = f"{producer}/{sequence + n}" if producer else ""
            order.append(partition)
            drafts.setdefault(partition, []).append(Draft(post.body, id, post.key, post.headers))
        given = {n: iter(await self.log.append(Part(name, n), batch)) for n, batch in drafts.items()}
        return [Posted(partition, next(given[partition])) for partition in order]

    async def read(
        self, caller: Caller, name: str, offset: int, limit: int, *, partition: int = 0, wait: float = 0.0
    ) -> list[Message]:
        """From `offset` on; at the end, up to `wait` seconds for something new."""
        caller.need("read")
        # private sources are told on the same topics as all others
        if name in OWN:
            caller.need("private")
        if offset < 0:
            raise BadInput(f"offset {offset} is negative", hint="offsets count from 0")
        part = await self.part(name, partition)
        found = await self.log.read(part, offset, limit)
        if found or wait <= 0:
            return found
        until = self.clock.now() + wait
        async with self.log.listen(part) as bell:
            while not (found := await self.log.read(part, offset, limit)):
                left = until - self.clock.now()
                if left <= 0 or not await bell.wait(left):
                    break
        return found

    async def part(self, name: str, partition: int) -> Part:
        return part_of(await self.find(name), partition)

    async def places(self, caller: Caller, name: str, start: str) -> list[Place]:
        """Where a reader begins that starts there, in each partition."""
        caller.need("read")
        topic = await self.find(name)
        return [Place(n, await resolve(self.log, Part(name, n), start)) for n in range(topic.partitions)]

    # Skep's own telling and following

    async def tell(self, tx: Tx, name: str, drafts: Sequence[Draft], now: float, *, repeats: bool = True) -> None:
        """Part of the caller's transaction: what is stored is told, and what is told is stored.

        Without `repeats` none of the ids can have been told before, and nobody looks.
        """
        if isinstance(self.log, TxLog):
            await self.log.append_in(tx, Part(name), drafts, now, repeats=repeats)
        else:
            await put(tx, name, drafts)

    async def unread(self, reader: str, name: str, limit: int) -> list[Message]:
        return await self.log.read(Part(name), await self.place(reader, name), limit)

    async def place(self, reader: str, name: str) -> int:
        rows = await self.db.read(
            "SELECT next_offset FROM place WHERE reader = :reader AND topic = :topic AND partition = 0",
            reader=reader,
            topic=name,
        )
        return int(rows[0]["next_offset"]) if rows else 0

    async def advance(self, tx: Tx, reader: str, name: str, old: int, new: int) -> bool:
        """Commit a place only where it was left: False when somebody else has gone on from there."""
        move = f"{MOVE_PLACE} WHERE place.next_offset = :old RETURNING next_offset"
        return bool(await tx.rows(move, **_of(reader, name), next_offset=new, old=old))

    async def commit(self, tx: Tx, reader: str, name: str, next_offset: int) -> None:
        move = f"{MOVE_PLACE} WHERE place.next_offset < excluded.next_offset"
        await tx.rows(move, **_of(reader, name), next_offset=next_offset)

    def listen(self, name: str, partition: int = 0) -> AbstractAsyncContextManager[Bell]:
        return self.log.listen(Part(name, partition))

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100) -> Page[Topic]:
        caller.need("read")
        rows = await self.db.read(
            "SELECT * FROM topic WHERE name > :page ORDER BY name LIMIT :limit", page=page, limit=limit + 1
        )
        items = [topic_of(row) for row in rows[:limit]]
        return Page(items, items[-1].name if len(rows) > limit else "")


def _of(reader: str, name: str) -> dict[str, Value]:
    return {"reader": reader, "topic": name, "partition": 0, "generation": 0}


def _own(name: str) -> None:
    if name.startswith("skep."):
        raise NotAllowed(f"{name!r} is Skep's own: only Skep tells on it", hint="choose a name without 'skep.'")


def _retention(seconds: float | None, bytes: int | None) -> None:
    if (seconds is not None and seconds <= 0) or (bytes is not None and bytes <= 0):
        raise BadInput("what is kept must be more than nothing", hint="leave it out to keep everything")
