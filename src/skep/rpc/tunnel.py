"""Where the two ends of a tunnel find each other: each comes with its half of a ticket.

A ticket is for one giver and one taker, who get their halves over their own links; it is good for a minute and for one
use. The giver always dials. The taker is this process, or dials too and is relayed. Another process may have issued the
ticket: what both halves say is signed, and that is enough.
"""

import asyncio
import base64
import binascii
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import grpc
import msgspec

from skep.base.errors import BadInput, Busy, NotAllowed, SkepError, Unavailable
from skep.base.io import pump
from skep.rpc.connect import Dial
from skep.rpc.messages import BREAKS, Broken, Declined

# One stream of bulk bytes, on a connection of its own so that nothing small waits behind it.
#
# Whoever dials shows a ticket first; from the answer on every message is bytes. gRPC lets only a client say that it has
# no more to send, so an empty message says it, in both directions.

METHOD = "/skep.Link/Carry"
#: longer than who has to come may take
_MET_SECONDS = 40.0
_LARGEST_SHOWN = 4_096
_TUNNEL = "the tunnel"


class Shown(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The first message of who dials."""

    ticket: str
    member: str
    #: why it cannot give what it was asked for
    declined: Declined | None = None


class Met(msgspec.Struct, frozen=True, tag=True):
    """The answer: bytes from here on."""


_encode = msgspec.msgpack.encode
_shown = msgspec.msgpack.Decoder(Shown).decode
_answer = msgspec.msgpack.Decoder(Met | Declined).decode


class CarryStream:
    """Either side of the gRPC stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        #: goes on when whoever waits for it is cancelled
        self._writing: asyncio.Future[None] | None = None
        self._read_all = False
        #: everything was written
        self.ended = False
        self.answered = False

    async def read(self) -> bytes:
        if self._read_all:
            return b""
        try:
            data = await self._stream.read()
        except BREAKS as error:
            raise Broken.of(_TUNNEL, error) from None
        if data is grpc.aio.EOF:
            raise Broken(f"{_TUNNEL} broke off")
        self._read_all = not data
        return bytes(data)

    async def write(self, data: bytes) -> None:
        self._writing = asyncio.ensure_future(self._stream.write(data))
        self._writing.add_done_callback(lambda writing: writing.cancelled() or writing.exception())
        try:
            await asyncio.shield(self._writing)
        except BREAKS as error:
            raise Broken.of(_TUNNEL, error) from None

    async def settled(self) -> None:
        """gRPC cannot end a stream, nor say why, while something is being written to it."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def drop(self) -> None:
        """Nobody waits for what is being written any more."""
        if self._writing is not None:
            self._writing.cancel()

    async def end(self) -> None:
        if not self.ended:
            self.ended = True
            await self.write(b"")

    # before the bytes

    async def shown(self) -> Shown:
        first = await self.read()
        try:
            if len(first) > _LARGEST_SHOWN:
                raise BadInput("a ticket is shorter than what came")
            return _shown(first)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BadInput("a tunnel begins with a ticket", hint="is something else talking to this address?") from None

    async def answer(self, answer: Met | SkepError) -> None:
        self.answered = True
        await self.write(_encode(Declined.of(answer) if isinstance(answer, SkepError) else answer))


@asynccontextmanager
async def dial(
    address: str, ticket: str, member: str, ca: str = "", declined: SkepError | None = None
) -> AsyncIterator[CarryStream]:
    """The stream that this ticket is for; an error says why there is none, in the words of the other side."""
    way = Dial((address,), ca)
    async with way.channel(address) as channel:
        call = channel.stream_stream(METHOD)()
        stream = CarryStream(call)
        try:
            try:
                await stream.write(_encode(Shown(ticket, member, Declined.of(declined) if declined else None)))
                await _meet(stream)
            except Broken as error:
                reason = await way.explain(address)
                raise Broken(f"{_TUNNEL} to {address}: {reason}") if reason else error from None
            yield stream
            if stream.ended:
                # a stream that is cancelled loses what is still on its way
                await call.done_writing()
                await call.code()
        except BREAKS as error:
            raise Broken.of(_TUNNEL, error) from None
        finally:
            call.cancel()
            stream.drop()


async def _meet(stream: CarryStream) -> None:
    try:
        async with asyncio.timeout(_MET_SECONDS):
            answer = _answer(await stream.read())
    except TimeoutError:
        raise Unavailable("nobody came to the other end of the tunnel") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable("this address answers no tickets", hint="run the same version of Skep on both") from None
    if isinstance(answer, Declined):
        raise answer.error()


# Tickets for tunnels: signed with the key of the fleet, so that whoever has it can issue one for any meeting point.

Side = Literal["give", "take"]


class Ticket(NamedTuple):
    #: for the member that gives
    give: str
    #: for whoever takes
    take: str


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """What a ticket says: both halves say the same."""

    id: str
    #: the meeting point where it is good
    at: str
    giver: str
    taker: str
    until: float

    def member(self, side: Side) -> str:
        return self.giver if side == "give" else self.taker


_decode = msgspec.msgpack.Decoder(Pass).decode


def issue(key: bytes, at: str, giver: str, taker: str, until: float) -> tuple[Pass, Ticket]:
    said = Pass(secrets.token_hex(8), at, giver, taker, until)
    text = base64.urlsafe_b64encode(msgspec.msgpack.encode(said)).decode()
    return said, Ticket(_half(key, text, "give"), _half(key, text, "take"))


def read(key: bytes, half: str, side: Side) -> Pass:
    """NotAllowed unless we, or another with our key, have written it."""
    text = half.partition(".")[0]
    if not hmac.compare_digest(_half(key, text, side).encode(), half.encode()):
        raise unknown()
    try:
        return _decode(base64.urlsafe_b64decode(text))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        raise unknown() from None


def unknown() -> NotAllowed:
    return NotAllowed("this ticket is not known, was used, or is too old", hint="ask for another")


def _half(key: bytes, text: str, side: Side) -> str:
    signature = hmac.new(key, f"{side}.{text}".encode(), "sha256").hexdigest()
    return f"{text}.{side}.{signature}"


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
        said, ticket = issue(self._key, self.name, giver, taker, until)
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
            self._expire(read(self._key, ticket.give, "give").id)
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
        said = read(self._key, shown.ticket, side)
        if shown.member != said.member(side):
            raise NotAllowed(f"this ticket is not for {shown.member or 'this process'}", hint="ask for another")
        tunnel = self._tunnels.get(said.id)
        if tunnel is None and said.id not in self._seen and said.at == self.name and said.until > self._now():
            tunnel = self._open(said)
        if tunnel is None or side not in tunnel.halves:
            raise unknown()
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
