"""Where the two ends of a tunnel find each other: each comes with its half of a ticket.

A ticket is for one giver and one taker, who get their halves over their own links; it is good for a minute and for one
use. The giver always dials. The taker is this process, or dials too and is relayed.
"""

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import grpc

from skep.errors import BadInput, Busy, NotAllowed, SkepError, Unavailable
from skep.link.carry import CarryStream, Met, Shown
from skep.streams import pump

#: tunnels, and tickets for such, at a time
MOST = 64
SECONDS = 60.0
_SHOW_SECONDS = 10.0


class Ticket(NamedTuple):
    #: for the member that gives
    give: str
    #: for whoever takes
    take: str


class _Tunnel:
    def __init__(self, giver: str, taker: str) -> None:
        self.members = {"give": giver, "take": taker}
        #: the halves that were not shown yet
        self.halves = {side: secrets.token_urlsafe(24) for side in self.members}
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
    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._tunnels: dict[str, _Tunnel] = {}

    def issue(self, giver: str, taker: str = "") -> Ticket:
        """`taker` is a member, or empty for this process."""
        if len(self._tunnels) >= self._most:
            raise Busy(f"{self._most} tunnels are open", hint="it will be tried again")
        id = secrets.token_hex(8)
        tunnel = self._tunnels[id] = _Tunnel(giver, taker)
        asyncio.get_running_loop().call_later(self._seconds, self._expire, id)
        return Ticket(*(f"{id}.{side}.{half}" for side, half in tunnel.halves.items()))

    @asynccontextmanager
    async def opened(self, giver: str, ask: Callable[[str], Awaitable[None]]) -> AsyncIterator[CarryStream]:
        """A tunnel to this process; `ask` lets the giver know of its half of the ticket."""
        ticket = self.issue(giver)
        try:
            await ask(ticket.give)
        except BaseException:
            self._expire(ticket.give.partition(".")[0])
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

    def _admit(self, shown: Shown, side: Literal["give", "take"]) -> tuple[str, _Tunnel]:
        id, _, half = shown.ticket.partition(f".{side}.")
        tunnel = self._tunnels.get(id)
        known = tunnel.halves.get(side, "") if tunnel else ""
        if not tunnel or not hmac.compare_digest(known.encode(), half.encode()) or not known:
            raise NotAllowed("this ticket is not known, was used, or is too old", hint="ask for another")
        if shown.member != tunnel.members[side]:
            raise NotAllowed(f"this ticket is not for {shown.member or 'this process'}", hint="ask for another")
        del tunnel.halves[side]
        return id, tunnel

    def _expire(self, id: str) -> None:
        """Nobody comes any more for a half that was not shown."""
        tunnel = self._tunnels.get(id)
        if tunnel is None or not tunnel.halves:
            return
        taken = "take" not in tunnel.halves
        tunnel.halves.clear()
        if taken:
            tunnel.fail(Unavailable(f"{tunnel.members['give']} did not come to the tunnel in {self._seconds:g} s"))
        else:
            tunnel.over.set()
            del self._tunnels[id]
