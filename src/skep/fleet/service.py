"""The fleet: which workers there are and which of them holds which source.

On one machine there is one worker; it holds everything. Where there are none yet, sources wait without a holder and
the first worker to say hello takes them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.fleet import orders
from skep.fleet.tokens import Tokens
from skep.model.answers import MemberStatus
from skep.model.member import Offer
from skep.model.source import Progress

#: a member not heard of for this many beats is shown as away
MISSED_BEATS = 3
_NOTHING = Offer()
#: rung when a worker came or offers something else: tasks may wait for just that
OFFERED = "tasks"
_STEPS = [
    """
    CREATE TABLE member (
        id TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, status TEXT NOT NULL,
        boot BIGINT NOT NULL, offer TEXT NOT NULL, mirror BIGINT NOT NULL,
        joined_at DOUBLE PRECISION NOT NULL, last_alive DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE holding (source TEXT PRIMARY KEY, member TEXT);
    CREATE INDEX holding_member ON holding (member)
    """
]


class Fleet:
    def __init__(self, db: Database, clock: Clock, *, token: str, beat_every: float) -> None:
        self._db = db
        self._clock = clock
        self.tokens = Tokens(db, clock, token)
        self._beat_every = beat_every
        #: member -> source -> what it does at this moment; not worth storing
        self._progress: dict[str, dict[str, Progress]] = {}

    async def start(self) -> None:
        await self._db.migrate("orders", orders.STEPS)
        await self.tokens.start()
        await self._db.migrate("fleet", _STEPS)

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
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            await orders.lock(tx)
            await self.tokens.admit(tx, member, token, role, local=local)
            await tx.rows(
                "INSERT INTO member (id, role, state, status, boot, offer, mirror, joined_at, last_alive) "
                "VALUES (:id, :role, 'alive', 'attached', :boot, :offer, :mirror, :now, :now) "
                "ON CONFLICT (id) DO UPDATE SET state = 'alive', status = 'attached', boot = excluded.boot, "
                "offer = excluded.offer, mirror = excluded.mirror, "
                "last_alive = excluded.last_alive",
                offer=_offer(offer),
                mirror=int(role == "worker" and offer.mirror),
                id=member,
                role=role,
                boot=boot,
                now=now,
            )
            tx.ring(OFFERED)
            if role == "worker" and offer.mirror:
                await self._take_over(tx, member)
            if also is not None:
                await also(tx)

        await self._db.write(work)

    async def _take_over(self, tx: Tx, member: str) -> None:
        waiting = await tx.rows("UPDATE holding SET member = :id WHERE member IS NULL RETURNING source", id=member)
        await orders.order_many(tx, member, "hold", [row["source"] for row in waiting])

    async def beat(self, member: str, status: str, progress: dict[str, Progress]) -> None:
        self._progress[member] = progress
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            await tx.rows(
                "UPDATE member SET status = :status, last_alive = :now, state = 'alive' WHERE id = :id",
                status=status,
                now=now,
                id=member,
            )

        await self._db.write(work, runtime=True)

    async def renew(self, member: str, offer: Offer) -> None:
        """A worker is alive and offers this; whoever waits for what it offers is told when it is more than before."""
        now, text = self._clock.now(), _offer(offer)

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT offer FROM member WHERE id = :id FOR UPDATE", id=member)
            await tx.rows(
                "UPDATE member SET offer = :offer, last_alive = :now, state = 'alive' WHERE id = :id",
                offer=text,
                now=now,
                id=member,
            )
            if rows and rows[0]["offer"] != text:
                tx.ring(OFFERED)

        await self._db.write(work, runtime=True)

    async def leave(self, member: str, boot: int) -> None:
        """A newer process of the member, at another coordinator perhaps, is not touched by it."""
        self._progress.pop(member, None)

        async def work(tx: Tx) -> None:
            await tx.rows(
                "DELETE FROM member WHERE id = :id AND boot = :boot AND role <> 'worker'", id=member, boot=boot
            )
            await tx.rows(
                "UPDATE member SET state = 'grace', status = 'detached' WHERE id = :id AND boot = :boot",
                id=member,
                boot=boot,
            )

        await self._db.write(work, runtime=True)

    def progress(self, source: str) -> Progress | None:
        return next((busy[source] for busy in self._progress.values() if source in busy), None)

    def settled(self, source: str) -> None:
        """What was under way for this source is over, whatever the last beat said."""
        for busy in self._progress.values():
            busy.pop(source, None)

    async def assign_many(
        self, tx: Tx, sources: Sequence[str], pins: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """Give new sources to the worker seen last, or to the first they are pinned to; without one they wait."""
        await orders.lock(tx)
        rows = await tx.rows("SELECT id FROM member WHERE mirror = 1 ORDER BY last_alive DESC")
        members = [row["id"] for row in rows] or [None]
        holders = {
            source: next((pin for pin in pins.get(source, ()) if pin in members), members[0]) for source in sources
        }
        await tx.many(
            "INSERT INTO holding (source, member) VALUES (:source, :member)",
            [{"source": source, "member": member} for source, member in holders.items()],
        )
        for member in {*holders.values()} - {None}:
            await orders.order_many(tx, member, "hold", [source for source in sources if holders[source] == member])

    async def ask(self, tx: Tx, kind: orders.OrderKind, source: str) -> None:
        """Order something of whoever holds the source; without a holder the hold itself will do it."""
        await self.ask_many(tx, kind, [source])

    async def ask_many(self, tx: Tx, kind: orders.OrderKind, sources: Sequence[str]) -> None:
        held: dict[str, list[str]] = {}
        for source in sources:
            for row in await tx.rows("SELECT member FROM holding WHERE source = :source", source=source):
                if row["member"]:
                    held.setdefault(row["member"], []).append(source)
        for member, theirs in held.items():
            await orders.order_many(tx, member, kind, theirs)

    async def release_many(self, tx: Tx, sources: Sequence[str]) -> None:
        named = [{"source": source} for source in sources]
        await tx.many("DELETE FROM ordered WHERE source = :source", named)
        await self.ask_many(tx, "release", sources)
        await tx.many("DELETE FROM holding WHERE source = :source", named)
        tx.ring(OFFERED)  # what waits for its holder waits in vain

    async def members(self) -> list[MemberStatus]:
        rows = await self._db.read("SELECT * FROM member ORDER BY id")
        return [self._status(row) for row in rows]

    async def workers(self) -> list[tuple[MemberStatus, Offer]]:
        rows = await self._db.read("SELECT * FROM member WHERE role = 'worker' ORDER BY id")
        return [(self._status(row), msgspec.json.decode(row["offer"], type=Offer)) for row in rows]

    def _status(self, row: Row) -> MemberStatus:
        silent = self._clock.now() - MISSED_BEATS * self._beat_every
        state = row["state"] if row["last_alive"] > silent else "away"
        return MemberStatus(row["id"], row["role"], state, row["status"], row["last_alive"])

    async def orders_pending(self) -> int:
        rows = await self._db.read("SELECT count(*) AS n FROM ordered")
        return int(rows[0]["n"])


def _offer(offer: Offer) -> str:
    return msgspec.json.encode(offer).decode()
