"""The tunnels of a serving process, for the rooms above: who gives what to whom.

Whoever gives is told by the coordinator that it is attached to, and dials here if it can; else both dial a coordinator,
which relays.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database
from skep.errors import SkepError, Unavailable
from skep.fleet import openings
from skep.fleet.servers import AWAY_SECONDS, Servers
from skep.link import tickets
from skep.link.carry import dial
from skep.link.meeting import SECONDS, Meeting, NotMet
from skep.link.messages import GitOf, Open, What
from skep.streams import Stream

if TYPE_CHECKING:
    from skep.link.server import LinkServer

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
        _, ticket = tickets.issue(self._key, relay, giver, self._me, self._clock.now() + SECONDS)
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
        await openings.ask(self._db, giver, msgspec.msgpack.encode(message), now, now + SECONDS)

    async def openings(self, member: str) -> list[Open]:
        """What others want of it."""
        return [_to_open(body) for body in await openings.take(self._db, member, self._clock.now())]

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
        async with self._db.listen(openings.channel(self._me)) as bell:
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
