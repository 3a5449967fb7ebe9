"""One stream of bulk bytes, on a connection of its own so that nothing small waits behind it.

Whoever dials shows a ticket first; from the answer on every message is bytes. gRPC lets only a client say that it has
no more to send, so an empty message says it, in both directions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec

from skep.errors import BadInput, SkepError, Unavailable
from skep.link.dial import Dial
from skep.link.messages import Declined
from skep.link.wire import BREAKS, Broken

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
