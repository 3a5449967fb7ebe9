"""Where the two ends of a tunnel find each other: each comes with its half of a ticket.

A ticket is for one giver and one taker, who get their halves over their own links; it is good for a minute and for one
use. The giver always dials. The taker is this process, or dials too and is relayed. Another process may have issued the
ticket: what both halves say is signed, and that is enough.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from skep.errors import BadInput, Busy, NotAllowed, SkepError, Unavailable
from skep.link import tickets
from skep.link.carry import CarryStream, Met, Shown
from skep.link.tickets import Pass, Side, Ticket
from skep.streams import pump

#: tunnels, and tickets for such, at a time
MOST = 64
SECONDS = 30.0
_SHOW_SECONDS = 10.0


class NotMet(Unavailable):
    """The giver did not come."""


class _Tunnel:
    def __init__(self, giver: str) -> None:
        self.giver = giver
        #: the halves that were not shown yet
        self.halves: set[Side] = {"give", "take"}
        self.given: asyncio.Future[CarryStream] = asyncio.get_running_loop().create_future()
        self.broken = False
        self.breaking = Unavailable(f"{giver} broke off the tunnel")
        #: while the taker is at work, what ends it when the giver breaks off
        self.taking: asyncio.Timeout | None = None
        self.over = asyncio.Event()

    def fail(self, error: SkepError) -> None:
        if not self.given.done():
            self.given.set_exception(error)
            self.given.exception()  # the taker may never come for it

    def break_off(self) -> None:
        self.broken = not self.over.is_set()
        self.fail(self.breaking)
        if self.broken and self.taking is not None:
            self.taking.reschedule(asyncio.get_running_loop().time())


class Meeting:
    def __init__(
        self,
        most: int = MOST,
        seconds: float = SECONDS,
        *,
        name: str = "",
        key: bytes = b"",
        now: Callable[[], float] = time.time,
    ) -> None:
        """`name` and `key`: by which others, who share the key, issue tickets for this place."""
        self.name = name
        self._key = key or secrets.token_bytes(32)
        self._now = now
        self._most = most
        self._seconds = seconds
        self._tunnels: dict[str, _Tunnel] = {}
        #: tickets that are not too old, whether or not they were used
        self._seen: set[str] = set()

    def issue(self, giver: str, taker: str = "") -> Ticket:
        """`taker` is a member, or empty for this process."""
        until = self._now() + self._seconds
        said, ticket = tickets.issue(self._key, self.name, giver, taker, until)
        self._open(said)
        return ticket

    def _open(self, said: Pass) -> _Tunnel:
        if len(self._tunnels) >= self._most:
            raise Busy(f"{self._most} tunnels are open", hint="it will be tried again")
        self._seen.add(said.id)
        tunnel = self._tunnels[said.id] = _Tunnel(said.giver)
        asyncio.get_running_loop().call_later(said.until - self._now(), self._forget, said.id)
        return tunnel

    @asynccontextmanager
    async def opened(self, giver: str, ask: Callable[[str], Awaitable[None]]) -> AsyncIterator[CarryStream]:
        """A tunnel to this process; `ask` lets the giver know of its half of the ticket."""
        ticket = self.issue(giver)
        try:
            await ask(ticket.give)
        except BaseException:
            self._expire(tickets.read(self._key, ticket.give, "give").id)
            raise
        async with self.take(ticket.take) as stream:
            yield stream

    @asynccontextmanager
    async def take(self, ticket: str, taker: str = "") -> AsyncIterator[CarryStream]:
        """The bytes of the giver, once it has come. Its refusal, and its breaking off, are errors here."""
        id, tunnel = self._admit(Shown(ticket, taker), "take")
        try:
            given = await tunnel.given
            async with asyncio.timeout(0 if tunnel.broken else None) as tunnel.taking:
                yield given
        except TimeoutError:
            if not tunnel.broken:
                raise
            raise tunnel.breaking from None
        finally:
            tunnel.over.set()
            del self._tunnels[id]

    async def carry(self, _: object, context: Any) -> None:
        """The gRPC method."""
        stream, failed = CarryStream(context), None
        try:
            await self._carry(stream)
        except SkepError as error:
            failed = error
        await stream.settled()
        if failed and stream.answered:
            await context.abort(grpc.StatusCode.UNAVAILABLE, failed.message)
        elif failed:
            await stream.answer(failed)

    async def _carry(self, stream: CarryStream) -> None:
        try:
            async with asyncio.timeout(_SHOW_SECONDS):
                shown = await stream.shown()
        except TimeoutError:
            raise BadInput("no ticket came") from None
        if ".give." in shown.ticket:
            await self._give(stream, shown)
        else:
            await self._relay(stream, shown)

    async def _give(self, stream: CarryStream, shown: Shown) -> None:
        _, tunnel = self._admit(shown, "give")
        try:
            if shown.declined:
                tunnel.fail(shown.declined.error())
            await stream.answer(Met())
            if not tunnel.given.done():
                tunnel.given.set_result(stream)
                await tunnel.over.wait()
        finally:
            tunnel.break_off()

    async def _relay(self, stream: CarryStream, shown: Shown) -> None:
        async with self.take(shown.ticket, shown.member) as given:
            await stream.answer(Met())
            await pump(given, stream)

    def _admit(self, shown: Shown, side: Side) -> tuple[str, _Tunnel]:
        said = tickets.read(self._key, shown.ticket, side)
        if shown.member != said.member(side):
            raise NotAllowed(f"this ticket is not for {shown.member or 'this process'}", hint="ask for another")
        tunnel = self._tunnels.get(said.id)
        if tunnel is None and said.id not in self._seen and said.at == self.name and said.until > self._now():
            tunnel = self._open(said)
        if tunnel is None or side not in tunnel.halves:
            raise tickets.unknown()
        tunnel.halves.discard(side)
        return said.id, tunnel

    def lost(self, giver: str) -> None:
        """It is not attached any more: who waits for it need not wait until its tickets are too old."""
        for tunnel in self._tunnels.values():
            if tunnel.giver == giver and "give" in tunnel.halves:
                tunnel.halves.clear()
                tunnel.fail(NotMet(f"{giver} is not attached any more"))

    def _forget(self, id: str) -> None:
        self._seen.discard(id)
        self._expire(id)

    def _expire(self, id: str) -> None:
        """Nobody comes any more for a half that was not shown."""
        tunnel = self._tunnels.get(id)
        if tunnel is None or not tunnel.halves:
            return
        taken = "take" not in tunnel.halves
        tunnel.halves.clear()
        if taken:
            tunnel.fail(NotMet(f"{tunnel.giver} did not come to the tunnel in {self._seconds:g} s"))
        else:
            tunnel.over.set()
            del self._tunnels[id]
