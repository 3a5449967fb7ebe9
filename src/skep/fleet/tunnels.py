"""The tunnels of a serving process, for the rooms above: who gives what to whom.

Whoever gives is told by the coordinator that it is attached to, and dials here if it can; else both dial a coordinator,
which relays.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from skep.base.answers import ServerStatus
from skep.base.clock import Clock
from skep.base.errors import SkepError, Unavailable
from skep.base.ids import new_id
from skep.base.io import Stream
from skep.rpc import tunnel
from skep.rpc.messages import GitOf, Open, What
from skep.rpc.tunnel import SECONDS, Meeting, NotMet, dial
from skep.storage.database import Database, Tx

if TYPE_CHECKING:
    from skep.rpc.server import LinkServer

# Tunnels that were asked for, until the coordinator that the giver is attached to has told it; the key of tickets.
#
# A row lives for a minute at most: a ticket is soon void, and who wanted the bytes asks again.

STEPS = [
    """
    CREATE TABLE opening (
        id TEXT PRIMARY KEY, member TEXT NOT NULL, body BYTEA NOT NULL, until DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX opening_member ON opening (member);
    CREATE TABLE ticket_key (id BIGINT PRIMARY KEY, secret TEXT NOT NULL)
    """
]


def channel(member: str) -> str:
    return f"openings:{member}"


async def start(db: Database) -> bytes:
    """The key that everybody on this database signs tickets with."""
    await db.migrate("openings", STEPS)
    secret = secrets.token_hex(32)

    async def work(tx: Tx) -> str:
        await tx.rows("INSERT INTO ticket_key (id, secret) VALUES (0, :s) ON CONFLICT (id) DO NOTHING", s=secret)
        rows = await tx.rows("SELECT secret FROM ticket_key WHERE id = 0")
        return str(rows[0]["secret"])

    return bytes.fromhex(await db.write(work))


async def ask(db: Database, member: str, body: bytes, now: float, until: float) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("DELETE FROM opening WHERE until < :now", now=now)
        await tx.rows(
            "INSERT INTO opening (id, member, body, until) VALUES (:id, :member, :body, :until)",
            id=new_id("opn", now),
            member=member,
            body=body,
            until=until,
        )
        tx.ring(channel(member))

    await db.write(work, runtime=True)


async def take(db: Database, member: str, now: float) -> list[bytes]:
    """Those that the member is to be told of; nobody else gets them again."""
    if not await db.read("SELECT id FROM opening WHERE member = :member LIMIT 1", member=member):
        return []
    rows = await db.write(
        lambda tx: tx.rows("DELETE FROM opening WHERE member = :member RETURNING body, until", member=member),
        runtime=True,
    )
    return [bytes(row["body"]) for row in rows if row["until"] > now]


# The serving processes, coordinators and aggregators: where each is reached, and how much it has gathered.

SERVERS_STEPS = [
    """
    CREATE TABLE server (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, roles TEXT NOT NULL, url TEXT NOT NULL, link TEXT NOT NULL,
        labels TEXT NOT NULL, sources BIGINT NOT NULL, due BIGINT NOT NULL, last_alive DOUBLE PRECISION NOT NULL
    )
    """
]
#: one that is silent for so long is away; after the longer time it is forgotten
AWAY_SECONDS, FORGET_SECONDS = 30.0, 2_592_000.0


class Place(msgspec.Struct, frozen=True):
    """This process, as others see it."""

    id: str
    name: str
    roles: Sequence[str]
    #: for people
    url: str
    #: HOST:PORT for workers; empty: they cannot dial it
    link: str
    #: of the sources that it gathers; none: all
    labels: Sequence[str] = ()


class Servers:
    def __init__(self, db: Database, clock: Clock, me: Place) -> None:
        self._db = db
        self._clock = clock
        self.me = me

    async def start(self) -> None:
        await self._db.migrate("servers", SERVERS_STEPS)
        await self.beat(0, 0)

    async def beat(self, sources: int, due: int) -> None:
        me = self.me
        words = {"roles": " ".join(me.roles), "labels": " ".join(me.labels), "name": me.name, "url": me.url}

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO server (id, name, roles, url, link, labels, sources, due, last_alive) VALUES "
                "(:id, :name, :roles, :url, :link, :labels, :sources, :due, :now) ON CONFLICT (id) DO UPDATE SET "
                "name = excluded.name, roles = excluded.roles, url = excluded.url, link = excluded.link, labels = "
                "excluded.labels, sources = excluded.sources, due = excluded.due, last_alive = excluded.last_alive",
                id=me.id,
                link=me.link,
                sources=sources,
                due=due,
                now=self._clock.now(),
                **words,
            )

        await self._db.write(work, runtime=True)

    async def leave(self) -> None:
        with suppress(SkepError):
            away = self._clock.now() - AWAY_SECONDS
            await self._db.write(
                lambda tx: tx.rows("UPDATE server SET last_alive = :away WHERE id = :id", id=self.me.id, away=away)
            )

    async def relay(self) -> tuple[str, str]:
        """Id and address of a coordinator where workers and this process can both come."""
        for one in await self.list():
            if "coordinator" in one.roles and one.link and one.state == "alive":
                return one.id, one.link
        raise Unavailable("no coordinator can relay", hint="set link_listen of one, or link_listen of this aggregator")

    async def list(self) -> list[ServerStatus]:
        rows = await self._db.read("SELECT * FROM server ORDER BY id")
        silent = self._clock.now() - AWAY_SECONDS
        return [
            ServerStatus(
                row["id"],
                row["name"],
                row["roles"].split(),
                "alive" if row["last_alive"] > silent else "away",
                row["url"],
                row["link"],
                row["labels"].split(),
                row["sources"],
                row["due"],
                row["last_alive"],
            )
            for row in rows
        ]


def keep_id(folder: Path, prefix: str, clock: Clock) -> str:
    """Made once, kept in the folder."""
    file = folder / "id"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(new_id(prefix, clock.now()))
    return file.read_text().strip()


#: whoever did not find the way here is relayed for so long
_RELAYED_SECONDS = 600.0
_BELL_SECONDS = 60.0
Give = Callable[[Stream], Awaitable[None]]
_to_open = msgspec.msgpack.Decoder(Open).decode


class Tunnels:
    def __init__(self, db: Database, clock: Clock, servers: Servers, key: bytes, ca: str = "") -> None:
        self._db = db
        self._clock = clock
        self._servers = servers
        self._me, self._link = servers.me.id, servers.me.link
        self._key = key
        self._ca = ca
        self.meeting = Meeting(name=self._me, key=key, now=clock.now)
        self._server: LinkServer | None = None
        self._giving: set[asyncio.Task[None]] = set()
        self._relayed: dict[str, float] = {}

    def attach(self, server: "LinkServer") -> None:
        """Before it starts."""
        server.meeting, self._server = self.meeting, server

    @asynccontextmanager
    async def opened(self, giver: str, what: What) -> AsyncIterator[Stream]:
        """What the member gives, taken by this process; through a relay if it does not find the way here."""
        now, here = self._clock.now(), self._is_here(giver)
        async with AsyncExitStack() as stack:
            if here or (self._link and self._relayed.get(giver, now) <= now):
                try:
                    met = self.meeting.opened(giver, partial(self._ask, giver, what))
                    stream: Stream = await stack.enter_async_context(met)
                except NotMet:
                    if here:
                        raise
                    self._relayed[giver] = now + _RELAYED_SECONDS
                    stream = await stack.enter_async_context(self._through_relay(giver, what))
            else:
                stream = await stack.enter_async_context(self._through_relay(giver, what))
            yield stream

    @asynccontextmanager
    async def _through_relay(self, giver: str, what: What) -> AsyncIterator[Stream]:
        relay, address = await self._servers.relay()
        _, ticket = tunnel.issue(self._key, relay, giver, self._me, self._clock.now() + SECONDS)
        await self._summon(giver, Open(address, ticket.give, what))
        async with dial(address, ticket.take, self._me, self._ca) as stream:
            yield stream

    async def between(self, giver: str, taker: str, what: What) -> str:
        """The taker's ticket: it dials this process, and so does the giver."""
        ticket = self.meeting.issue(giver, taker)
        await self._ask(giver, what, ticket.give)
        return ticket.take

    def _is_here(self, member: str) -> bool:
        return self._server is not None and self._server.has(member)

    async def _ask(self, giver: str, what: What, half: str) -> None:
        if self._server is not None and self._server.has(giver):
            await self._server.push(giver, Open("", half, what))
        elif self._link:
            await self._summon(giver, Open(self._link, half, what))
        else:
            raise Unavailable(f"{giver} is not attached", hint="it will be tried again when it is back")

    async def _summon(self, giver: str, message: Open) -> None:
        """Through whichever coordinator it is attached to."""
        now = self._clock.now()
        there = await self._db.read(
            "SELECT id FROM member WHERE id = :id AND state = 'alive' "
            "UNION ALL SELECT id FROM server WHERE id = :id AND last_alive > :since",
            id=giver,
            since=now - AWAY_SECONDS,
        )
        if not there:
            raise Unavailable(f"{giver} is not attached", hint="it will be tried again when it is back")
        await ask(self._db, giver, msgspec.msgpack.encode(message), now, now + SECONDS)

    async def openings(self, member: str) -> list[Open]:
        """What others want of it."""
        return [_to_open(body) for body in await take(self._db, member, self._clock.now())]

    # what this process gives

    def from_here(self, taker: str, give: Give) -> str:
        """The taker's ticket for what this process gives itself."""
        if self._server is None:
            raise Unavailable("no worker can be reached through a tunnel yet")
        ticket = self.meeting.issue("", taker)
        self._begin(self._give(self._server.target, ticket.give, "", give))
        return ticket.take

    async def follow(self, find: Callable[[str], Give]) -> None:
        """For ever: give what others want of what this process has gathered."""
        async with self._db.listen(channel(self._me)) as bell:
            while True:
                for asked in await self.openings(self._me):
                    if isinstance(asked.what, GitOf):
                        self._begin(self._give(asked.address, asked.ticket, self._me, find(asked.what.source)))
                await bell.wait(_BELL_SECONDS)

    def _begin(self, giving: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(giving)
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)

    async def _give(self, target: str, half: str, member: str, give: Give) -> None:
        """The taker hears of what goes wrong at its own end."""
        with contextlib.suppress(SkepError, OSError):
            async with dial(target, half, member, self._ca) as stream:
                await give(stream)

    async def close(self) -> None:
        giving = list(self._giving)
        for task in giving:
            task.cancel()
        await asyncio.gather(*giving, return_exceptions=True)
