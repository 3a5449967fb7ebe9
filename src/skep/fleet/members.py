"""The fleet: which members there are and which of them holds which source.

Sources wait without a holder until enough workers are there; then the ring divides them. A worker that falls silent
keeps what it holds for a time of grace, because it is more likely to come back than not.
"""

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from skep.access.audit import note
from skep.access.tokens import Tokens
from skep.base.answers import MemberStatus
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import Conflict, NotFound, Replaced, Unavailable
from skep.fleet import assignments
from skep.fleet.api import Offer
from skep.fleet.assignments import give
from skep.fleet.events import DOWN, UP, happened
from skep.fleet.ring import Member, choose
from skep.sources.model import Progress
from skep.storage.database import Database, Row, Tx, Value

# Which sources people searched or cloned lately. In memory and bounded: to forget one costs nothing but freshness.

MOST = 1_000


class Interest:
    def __init__(self) -> None:
        self._count = 0
        #: source -> count when it was last of interest, oldest first
        self._at: OrderedDict[str, int] = OrderedDict()

    def note(self, sources: Iterable[str]) -> None:
        for source in sources:
            self._count += 1
            self._at[source] = self._count
            self._at.move_to_end(source)
        while len(self._at) > MOST:
            self._at.popitem(last=False)

    def since(self, after: int) -> tuple[int, list[str]]:
        """The count now, and the sources noted after the count `after`."""
        return self._count, [source for source, at in self._at.items() if at > after]


# The tables of the fleet: who is a member, and who holds which source, and who else has a copy of it.

STEPS = [
    """
    CREATE TABLE member (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, status TEXT NOT NULL,
        boot BIGINT NOT NULL, offer TEXT NOT NULL, mirror BIGINT NOT NULL, capacity DOUBLE PRECISION NOT NULL,
        draining BIGINT NOT NULL, joined_at DOUBLE PRECISION NOT NULL, last_alive DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE member_event (
        n BIGINT PRIMARY KEY, member TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, what TEXT NOT NULL
    );
    CREATE INDEX member_event_member ON member_event (member, n);
    CREATE TABLE member_count (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO member_count (id, n) VALUES (0, 0);
    CREATE TABLE holding (source TEXT PRIMARY KEY, member TEXT, pins TEXT NOT NULL);
    CREATE INDEX holding_member ON holding (member);
    CREATE TABLE source_replica (
        source TEXT NOT NULL, member TEXT NOT NULL, complete BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (source, member)
    );
    CREATE INDEX source_replica_member ON source_replica (member);
    CREATE INDEX source_replica_under_way ON source_replica (at) WHERE complete = 0
    """
]

#: says hello
JOIN = """
    INSERT INTO member (id, name, role, state, status, boot, offer, mirror, capacity, draining, joined_at, last_alive)
    VALUES (:id, :name, :role, 'alive', 'attached', :boot, :offer, :mirror, :capacity, 0, :now, :now)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = 'alive', status = 'attached', boot = excluded.boot,
        offer = excluded.offer, mirror = excluded.mirror, capacity = excluded.capacity, last_alive = excluded.last_alive
"""


#: a member not heard of for this many beats is in its grace
MISSED_BEATS = 3
_NOTHING = Offer()
#: rung when a worker came or offers something else: tasks may wait for just that
OFFERED = "tasks"
#: rung when members come, go, or are to be emptied
FLEET = "fleet"
_COPIED = "was its data folder copied? each worker needs one of its own"
#: what `member.draining` is when the worker wants it, not a person
_BY_ITSELF = 2
_ALIVE = "UPDATE member SET status = :status, last_alive = :now, state = 'alive' WHERE id = :id AND boot = :boot"
#: changes nothing, and fails where a beat could not be stored: reading may go on while a disk is full
_LISTENED = "UPDATE member SET boot = boot WHERE id = (SELECT min(id) FROM member)"


class Fleet:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        *,
        token: str,
        beat_every: float,
        grace: float = 600.0,
        expected: int = 1,
        first_wait: float = 600.0,
    ) -> None:
        """`expected`: so many workers are waited for at the first start, but no longer than `first_wait` seconds."""
        self._db = db
        self._clock = clock
        self.tokens = Tokens(db, clock, token)
        self._beat_every = beat_every
        self._grace = grace
        self._expected = expected
        self._first_wait = first_wait
        #: nobody was given anything yet
        self._waits = True
        self._started = clock.now()
        #: when somebody listened last, and since when without a break
        self._listened = self._listening = self._started
        #: member -> source -> what it does at this moment; not worth storing
        self._progress: dict[str, dict[str, Progress]] = {}
        #: member -> what its last beat said, and when it was heard, by us
        self._ill: dict[str, str] = {}
        self._heard: dict[str, float] = {}

    async def start(self) -> None:
        await self._db.migrate("orders", assignments.STEPS)
        await self.tokens.start()
        await self._db.migrate("fleet", STEPS)
        self._waits = not await self._db.read("SELECT source FROM holding WHERE member IS NOT NULL LIMIT 1")

    async def join(
        self,
        member: str,
        token: str,
        boot: int,
        role: str,
        offer: Offer = _NOTHING,
        also: Callable[[Tx], Awaitable[None]] | None = None,
        *,
        local: bool = True,
    ) -> None:
        """A member says hello: it is alive, and a worker takes over the sources nobody holds. `also` is part of it.

        `local`: it came over the server's own socket."""
        now = self._heard[member] = self._clock.now()

        async def work(tx: Tx) -> None:
            await assignments.lock(tx)
            await self.tokens.admit(tx, member, token, role, local=local)
            newer = "SELECT id FROM member WHERE id = :id AND boot > :boot AND state = 'alive'"
            if await tx.rows(newer, id=member, boot=boot):
                raise Replaced(f"a newer process of {member} is attached", hint=_COPIED)
            await tx.rows(
                JOIN,
                name=offer.name,
                offer=_offer(offer),
                mirror=int(role == "worker" and offer.mirror),
                capacity=offer.capacity,
                id=member,
                role=role,
                boot=boot,
                now=now,
            )
            await happened(tx, member, now, UP)
            tx.ring(OFFERED)
            tx.ring(FLEET)
            if role == "worker" and offer.mirror:
                await self._hand_out(tx)
            if also is not None:
                await also(tx)

        await self._db.write(work)

    async def _hand_out(self, tx: Tx) -> None:
        """What nobody holds goes to those who are there, once they are enough. Mostly there is nothing of that: a
        thousand that come back together must not be compared with each other for it."""
        if self._waits and self.is_early(await self._members(tx)):
            return
        waiting = await tx.rows("SELECT source, pins FROM holding WHERE member IS NULL")
        if not waiting:
            return
        members = await self._members(tx)
        chosen = choose(members, {row["source"]: json.loads(row["pins"]) for row in waiting})
        await give(tx, {source: member for source, member in chosen.items() if member})

    def is_early(self, members: Sequence[Member]) -> bool:
        """At the first start it is worth waiting: who comes first would get everything, only to give it away again."""
        if self._waits:
            alive = sum(one.state == "alive" for one in members)
            self._waits = alive < self._expected and self._clock.now() < self._started + self._first_wait
        return self._waits

    async def _members(self, tx: Tx) -> list[Member]:
        """Workers that mirror."""
        columns = "id, name, state, capacity, draining"  # what is offered is long
        rows = await tx.rows(f"SELECT {columns} FROM member WHERE mirror = 1 ORDER BY id")  # noqa: S608
        return [member_of(row) for row in rows]

    async def beat(self, member: str, boot: int, status: str, progress: dict[str, Progress], ill: str = "") -> None:
        """`ill`: why it can hold nothing; it is emptied until it is well again."""
        self._progress[member] = progress
        now, turned = self._clock.now(), self._ill.get(member) != ill
        self._heard[member] = now
        self._ill[member] = ill

        async def work(tx: Tx) -> None:
            said: dict[str, Value] = {"status": status, "now": now, "id": member, "boot": boot}
            if not await tx.rows(f"{_ALIVE} AND state = 'alive' RETURNING id", **said):
                # it was silent for a while, or the end of the stream before this one was noticed late
                if not await tx.rows(f"{_ALIVE} RETURNING id", **said):
                    if await tx.rows("SELECT id FROM member WHERE id = :id", id=member):
                        raise Replaced(f"a newer process of {member} has attached", hint=_COPIED)
                    raise Unavailable(f"{member} is not known any more", hint="it has to say hello again")
                tx.ring(FLEET)
                tx.ring(OFFERED)
            before, after = (0, _BY_ITSELF) if ill else (_BY_ITSELF, 0)
            if turned and await tx.rows(
                "UPDATE member SET draining = :after WHERE id = :id AND draining = :before RETURNING id",
                id=member,
                before=before,
                after=after,
            ):
                await note(tx, now, SYSTEM, "worker.ill" if ill else "worker.well", f"{member} {ill}".strip())
                tx.ring(FLEET)
                tx.ring(OFFERED)

        await self._db.write(work, runtime=True)

    async def renew(self, member: str, offer: Offer) -> None:
        """A worker is alive and offers this; whoever waits for what it offers is told when it is more than before."""
        now, text = self._clock.now(), _offer(offer)
        self._heard[member] = now

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT offer, state FROM member WHERE id = :id FOR UPDATE", id=member)
            await tx.rows(
                "UPDATE member SET offer = :offer, last_alive = :now, state = 'alive' WHERE id = :id",
                offer=text,
                now=now,
                id=member,
            )
            if rows and (rows[0]["offer"], rows[0]["state"]) != (text, "alive"):
                tx.ring(OFFERED)

        await self._db.write(work, runtime=True)

    async def leave(self, member: str, boot: int, *, down: bool = True) -> bool:
        """False: it is not gone. A newer process of it, or this one at another coordinator, was heard since.

        Not `down`: it was sent away, which does not count against it.
        """
        self._progress.pop(member, None)
        self._ill.pop(member, None)
        who: dict[str, Value] = {"id": member, "boot": boot, "heard": self._heard.pop(member, 0.0)}
        last = "WHERE id = :id AND boot = :boot AND last_alive <= :heard"

        async def work(tx: Tx) -> bool:
            detached = f"UPDATE member SET state = 'grace', status = 'detached' {last} RETURNING id"  # noqa: S608
            gone = await tx.rows(detached, **who)
            await tx.rows(f"DELETE FROM member {last} AND role <> 'worker'", **who)  # noqa: S608
            if gone and down:
                await happened(tx, member, self._clock.now(), DOWN)
            if gone:
                tx.ring(FLEET)
            return bool(gone)

        return await self._db.write(work, runtime=True)

    def progress(self, source: str) -> Progress | None:
        return next((busy[source] for busy in self._progress.values() if source in busy), None)

    def settled(self, source: str) -> None:
        """What was under way for this source is over, whatever the last beat said."""
        for busy in self._progress.values():
            busy.pop(source, None)

    async def assign_many(
        self, tx: Tx, sources: Sequence[str], pins: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """Give new sources to whom the ring or their pins say; without anybody there they wait."""
        await assignments.lock(tx)
        wanted = {source: pins.get(source, ()) for source in sources}
        await tx.many(
            "INSERT INTO holding (source, member, pins) VALUES (:source, NULL, :pins)",
            [{"source": source, "pins": json.dumps(list(own))} for source, own in wanted.items()],
        )
        members = await self._members(tx)
        if not self.is_early(members):
            chosen = choose(members, wanted)
            await give(tx, {source: member for source, member in chosen.items() if member})

    # what changes hands

    async def listen(self) -> None:
        """Called again and again, whoever patrols: that this process stood still, its machine slept, or no beat could
        be stored is noticed. After half a grace: who was heard last before it has the other half to come back in."""
        await self._db.write(lambda tx: tx.rows(_LISTENED), runtime=True)
        now = self._clock.now()
        if now > self._listened + self._grace / 2:
            self._listening = now
        self._listened = now

    async def patrol(self) -> None:
        """Who is silent is in its grace; when that is over it is gone.

        Counted from when we began to listen: that nobody was heard while nobody listened says nothing of them.
        """
        now = self._clock.now()
        silent, over = now - MISSED_BEATS * self._beat_every, now - self._grace

        async def work(tx: Tx) -> None:
            down = await tx.rows(
                "UPDATE member SET state = 'grace' WHERE state = 'alive' AND last_alive < :silent "
                "AND :silent > :listening RETURNING id",
                silent=silent,
                listening=self._listening,
            )
            for row in down:
                await happened(tx, row["id"], now, DOWN)
            gone = await tx.rows(
                "UPDATE member SET state = 'gone' WHERE state = 'grace' AND role = 'worker' AND last_alive < :over "
                "AND :over > :listening RETURNING id",
                over=over,
                listening=self._listening,
            )
            others = await tx.rows("DELETE FROM member WHERE role <> 'worker' AND last_alive < :over", over=over)
            if down or gone or others:
                tx.ring(FLEET)

        await self._db.write(work, runtime=True)

    async def drain(self, member: str, *, on: bool = True, by: Caller = SYSTEM) -> None:
        """Everything it holds goes to others, each only after it was copied; nothing new comes to it."""

        async def work(tx: Tx) -> None:
            rows = await tx.rows(
                "UPDATE member SET draining = :on WHERE id = :id AND role = 'worker' RETURNING id",
                on=int(on),
                id=member,
            )
            if not rows:
                raise NotFound(f"there is no worker {member!r}", hint="`skep worker list` shows those there are")
            await note(tx, self._clock.now(), by, "worker.drain" if on else "worker.resume", member)
            tx.ring(FLEET)
            tx.ring(OFFERED)

        await self._db.write(work)

    async def forget(self, member: str, by: Caller = SYSTEM) -> None:
        """It will not come back; what it holds is given to others without any further grace."""

        async def work(tx: Tx) -> None:
            await assignments.lock(tx)
            rows = await tx.rows("SELECT state FROM member WHERE id = :id", id=member)
            if not rows:
                raise NotFound(f"there is no member {member!r}", hint="`skep worker list` shows those there are")
            if rows[0]["state"] == "alive":
                raise Conflict(f"{member} is alive", hint="stop it first, or drain it")
            for table in ("member WHERE id", "member_event WHERE member", "ordered WHERE member"):
                await tx.rows(f"DELETE FROM {table} = :id", id=member)  # noqa: S608
            await self.tokens.unbind(tx, member)
            await note(tx, self._clock.now(), by, "worker.forget", member)
            tx.ring(FLEET)

        await self._db.write(work)

    async def pin_many(self, tx: Tx, pins: Mapping[str, Sequence[str]]) -> None:
        """Other pins than before move their sources with the next plan."""
        await tx.many(
            "UPDATE holding SET pins = :pins WHERE source = :source AND pins <> :pins",
            [{"source": source, "pins": json.dumps(list(own))} for source, own in pins.items()],
        )
        tx.ring(FLEET)

    async def role(self, member: str) -> str:
        rows = await self._db.read("SELECT role FROM member WHERE id = :id", id=member)
        return str(rows[0]["role"]) if rows else ""

    async def holder(self, source: str) -> str | None:
        rows = await self._db.read("SELECT member FROM holding WHERE source = :source", source=source)
        return rows[0]["member"] if rows else None

    async def replicas(self, source: str) -> dict[str, bool]:
        """Who else has a copy, or makes one; whether it is complete."""
        rows = await self._db.read("SELECT * FROM source_replica WHERE source = :source ORDER BY member", source=source)
        return {row["member"]: bool(row["complete"]) for row in rows}

    async def ask(self, tx: Tx, kind: assignments.OrderKind, source: str) -> None:
        """Order something of whoever holds the source; without a holder the hold itself will do it."""
        await self.ask_many(tx, kind, [source])

    async def ask_many(self, tx: Tx, kind: assignments.OrderKind, sources: Sequence[str]) -> None:
        who = "SELECT member FROM holding WHERE source = :source AND member IS NOT NULL"
        if kind == "release":
            who += " UNION SELECT member FROM source_replica WHERE source = :source"
        held: dict[str, list[str]] = {}
        for source in sources:
            for row in await tx.rows(who, source=source):
                held.setdefault(row["member"], []).append(source)
        for member, theirs in held.items():
            await assignments.order_many(tx, member, kind, theirs)

    async def release_many(self, tx: Tx, sources: Sequence[str]) -> None:
        named = [{"source": source} for source in sources]
        await tx.many("DELETE FROM ordered WHERE source = :source", named)
        await self.ask_many(tx, "release", sources)
        for table in ("holding", "source_replica"):
            await tx.many(f"DELETE FROM {table} WHERE source = :source", named)  # noqa: S608
        tx.ring(OFFERED)  # what waits for its holder waits in vain

    async def members(self) -> list[MemberStatus]:
        rows = await self._db.read("SELECT * FROM member ORDER BY id")
        return [self._status(row) for row in rows]

    async def workers(self) -> list[tuple[MemberStatus, Offer]]:
        rows = await self._db.read("SELECT * FROM member WHERE role = 'worker' ORDER BY id")
        return [(self._status(row), msgspec.json.decode(row["offer"], type=Offer)) for row in rows]

    def _status(self, row: Row) -> MemberStatus:
        silent = row["last_alive"] < self._clock.now() - MISSED_BEATS * self._beat_every
        state = "grace" if silent and row["state"] == "alive" else row["state"]  # until the patrol comes by
        return MemberStatus(row["id"], row["role"], state, row["status"], row["last_alive"], row["name"])

    async def orders_pending(self) -> int:
        rows = await self._db.read("SELECT count(*) AS n FROM ordered")
        return int(rows[0]["n"])


def member_of(row: Row, downs: int = 0) -> Member:
    return Member(row["id"], row["name"], row["state"], row["capacity"], bool(row["draining"]), downs)


def _offer(offer: Offer) -> str:
    return msgspec.json.encode(offer).decode()
