"""The log on NATS JetStream: one stream for each partition, whose sequence numbers less one are our offsets.

What it promises is what nats-server 2.9 does: messages are acknowledged when the server has taken them, before they are
on disk; the drafts of one append are stored one after the other, not all or none; ids are remembered for two minutes,
also those of trimmed messages. A message's time is the server's.

The user of the URL needs `skep.>`, `_INBOX.>` and `$JS.API.>`.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from skep.base.errors import Conflict, NotFound, SkepError, TooLarge, Unavailable
from skep.storage.database import Bell, Bells, Database
from skep.storage.jetstream_connection import (
    BROKEN,
    Address,
    Answer,
    ConsumerInfo,
    Fault,
    Link,
    Names,
    Packed,
    StreamInfo,
    StreamState,
    address,
    delivered,
    names,
    packed,
    size,
    unpacked,
)
from skep.storage.topic_log import Log, Promises
from skep.topics.api import Draft, Message, Part

# Rings after messages are stored, not when they are published: a reader that is woken finds them.

#: seconds between rings: many messages share one
_PAUSE = 0.002


class Ringer:
    def __init__(self) -> None:
        self._due: set[str] = set()
        self._any = asyncio.Event()

    def ring(self, bell: str) -> None:
        self._due.add(bell)
        self._any.set()

    async def run(self, connected: Callable[[], Awaitable[Client]]) -> None:
        while True:
            await self._any.wait()
            # what cannot be told now is due until the server is back
            with contextlib.suppress(*BROKEN, Unavailable):
                client = await connected()
                self._any.clear()
                while self._due:
                    await self._send(client, self._due.pop())
            await asyncio.sleep(_PAUSE)

    async def _send(self, client: Client, bell: str) -> None:
        try:
            await client.publish(bell)
        except BROKEN:
            self.ring(bell)
            raise


# Places from which streams are read. An open one costs the server a consumer, and the next read one round trip.

#: messages asked for at once, so that no read fills the memory on its way
_BATCH = 500
#: seconds after which an unused reader is given up here, and then there
_IDLE, _FORGOTTEN = 20.0, 60.0
#: seconds in which the server begins to deliver; it never answers for a consumer that it has forgotten
_DELIVERY = 1.0
_MOST = 64


class Stale(Exception):
    """The server does not know this reader any more."""


class Reader:
    """One consumer on the server: it delivers what follows what it delivered before."""

    def __init__(self, client: Client, stream: str, turn: int, offset: int) -> None:
        self.turn = turn
        #: of the message that it delivers next
        self.offset = offset
        #: False once a trim overtook it: the server then miscounts what is left, and does not say when it is none
        self.whole = True
        self._client = client
        self._stream = stream
        self._consumer = ""
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._asked = 0
        self._wanted = 0
        self._here: list[Message] = []
        self._settled: asyncio.Future[bool] | None = None

    async def open(self, link: Link) -> None:
        # no limits: it never has more than it asked for
        self._subscription = await self._client.subscribe(
            f"{self._inbox}.*", cb=self._heard, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.offset + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_FORGOTTEN * 1e9),
        }
        ask = {"stream_name": self._stream, "config": config}
        try:
            self._consumer = (await link.request(f"CONSUMER.CREATE.{self._stream}", ask, ConsumerInfo)).name
        except BaseException:
            await self.close()
            raise

    async def fetch(self, limit: int, seconds: float) -> list[Message]:
        """What is there, at most `limit`; never waits for more to come. Stale when nothing arrives for `seconds`."""
        while len(self._here) < limit and await self._ask(min(limit, len(self._here) + _BATCH), seconds):
            pass
        got, self._here = self._here[:limit], self._here[limit:]
        if got:
            self.whole = got[-1].offset - self.offset == len(got) - 1
            self.offset = got[-1].offset + 1
        return got

    async def _ask(self, wanted: int, seconds: float) -> bool:
        """False: there is no more for now."""
        self._asked += 1
        self._wanted = wanted
        self._settled = asyncio.get_running_loop().create_future()
        ask = msgspec.json.encode({"batch": wanted - len(self._here), "no_wait": True})
        try:
            reply = f"{self._inbox}.{self._asked}"
            await self._client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}", ask, reply)
            had = -1
            while not self._settled.done():
                if had == len(self._here):
                    raise Stale
                had = len(self._here)
                await asyncio.wait((self._settled,), timeout=seconds)
        except BROKEN:
            raise Stale from None
        return self._settled.result()

    async def _heard(self, msg: Msg) -> None:
        if msg.subject.startswith(self._inbox):
            # "no messages" or "no more", in words; those of an earlier request are late
            if msg.subject == f"{self._inbox}.{self._asked}":
                self._settle(False)
            return
        told = delivered(msg.reply)
        self._here.append(unpacked(told, msg))
        if not told.pending or len(self._here) >= self._wanted:
            self._settle(bool(told.pending))

    def _settle(self, more: bool) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(more)

    async def close(self) -> None:
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            if self._consumer:
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}")
        except BROKEN:
            pass  # the connection is gone, and the server forgets by itself


class Readers:
    """Those that nobody uses just now, by the offset where they go on."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._idle: OrderedDict[tuple[str, int], tuple[float, Reader]] = OrderedDict()

    async def read(self, stream: str, offset: int, limit: int) -> list[Message] | None:
        """None when no reader waits at this offset."""
        _, reader = self._idle.pop((stream, offset), (0.0, None))
        if reader is None:
            return None
        try:
            return await self._used(reader, stream, limit, _DELIVERY)
        except Stale:
            return None

    async def begin(self, stream: str, offset: int, limit: int) -> list[Message]:
        reader = Reader(await self._link.client(), stream, self._link.turn, offset)
        try:
            await reader.open(self._link)
            # the server has just said that it knows it
            return await self._used(reader, stream, limit, self._link.patience)
        except (Stale, *BROKEN):
            raise self._link.away() from None

    async def trimmed(self, stream: str, before: int) -> None:
        """Gives up readers that stand below the new edge."""
        for place in [place for place in self._idle if place[0] == stream and place[1] < before]:
            await self._idle.pop(place)[1].close()

    async def _used(self, reader: Reader, stream: str, limit: int, seconds: float) -> list[Message]:
        kept = False
        try:
            if reader.turn != self._link.turn:
                raise Stale
            messages = await reader.fetch(limit, seconds)
            kept = reader.whole
        finally:
            if not kept:
                await reader.close()
        if kept:
            await self._keep((stream, reader.offset), reader)
        return messages

    async def _keep(self, place: tuple[str, int], reader: Reader) -> None:
        now = asyncio.get_running_loop().time()
        leaving = [self._idle.pop(place)[1]] if place in self._idle else []
        self._idle[place] = (now, reader)
        while len(self._idle) > _MOST or next(iter(self._idle.values()))[0] < now - _IDLE:
            leaving.append(self._idle.popitem(last=False)[1][1])
        for left in leaving:
            await left.close()


DEDUP_SECONDS = 120
#: in place of the server's answer
_NO_STREAM = Answer(error=Fault(503, 0, "no such stream"))
_UNKNOWN = Answer(error=Fault(503, 0, "no answer"))
_answer = msgspec.json.Decoder(Answer)


async def open_jetstream(url: str, *, db: Database, patience: float | None = None) -> Log:
    """`patience`: in place of the URL's."""
    to = address(url)
    log = JetStreamLog(to, patience or to.patience)
    try:
        await log.start()
    except BaseException:
        await log.close()
        raise
    return log


class JetStreamLog:
    promises = Promises(fsync=False, atomic_batch=False, dedup_window=DEDUP_SECONDS)

    def __init__(self, to: Address, patience: float) -> None:
        self._bells = Bells()
        self._ringer = Ringer()
        self._link = Link(to, patience, begin=self._begin, back=self._bells.ring_all)
        self._readers = Readers(self._link)
        #: streams that were there; one that somebody removed is made again when an append finds it missing
        self._known: set[str] = set()
        self._making = asyncio.Lock()
        self._ringing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._link.start()
        await self._link.request("INFO", None, Answer)
        self._ringing = asyncio.create_task(self._ringer.run(self._link.client), name="rings the bells of the log")

    async def close(self) -> None:
        if self._ringing is not None:
            self._ringing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ringing
        await self._link.close()

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]:
        to = names(part)
        messages = [packed(draft) for draft in drafts]
        if not messages:
            return []
        client = await self._link.client()
        largest = max(size(message) for message in messages)
        if largest > client.max_payload:
            raise TooLarge(
                f"a message of {largest} bytes with its headers is more than NATS takes, {client.max_payload}",
                hint="max_payload in the configuration of nats-server",
            )
        answers = await self._stored(to, messages)
        if all(answer == _NO_STREAM for answer in answers):
            self._known.discard(to.stream)
            answers = await self._stored(to, messages)
        if any(answer.error for answer in answers):
            raise self._failed(answers)
        return [answer.seq - 1 for answer in answers]

    async def read(self, part: Part, offset: int, limit: int) -> list[Message]:
        if limit < 1:
            return []
        stream, offset = names(part).stream, max(offset, 0)
        messages = await self._readers.read(stream, offset, limit)
        if messages is None:
            first, end = await self.bounds(part)
            offset = max(offset, first)
            messages = await self._readers.begin(stream, offset, limit) if offset < end else []
        return messages

    async def bounds(self, part: Part) -> tuple[int, int]:
        state = await self._state(part)
        # the first of an empty stream is one after the last, or 0 when it never had one
        return max(state.first_seq - 1, 0), state.last_seq

    async def size(self, part: Part) -> int:
        """As the server counts: headers and its own bookkeeping included."""
        return (await self._state(part)).bytes

    async def _state(self, part: Part) -> StreamState:
        try:
            return (await self._link.request(f"STREAM.INFO.{names(part).stream}", None, StreamInfo)).state
        except NotFound:
            return StreamState()

    async def trim(self, part: Part, before: int) -> None:
        first, end = await self.bounds(part)
        if first < min(before, end):
            before, stream = min(before, end), names(part).stream
            await self._link.request(f"STREAM.PURGE.{stream}", {"seq": before + 1}, Answer)
            await self._readers.trimmed(stream, before)

    def listen(self, part: Part) -> AbstractAsyncContextManager[Bell]:
        return self._bells.listen(names(part).bell)

    async def _begin(self, client: Client) -> None:
        async def heard(msg: Msg) -> None:
            self._bells.ring((msg.subject,))

        # every bell of the log, so that listening needs no words with the server
        await client.subscribe("skep.bell.*", cb=heard)

    async def _stored(self, to: Names, messages: Sequence[Packed]) -> list[Answer]:
        await self._ensure(to)
        answers = await self._link.ask(to.subject, messages, lambda: self._ringer.ring(to.bell))
        return [_UNKNOWN if msg is None else _answer.decode(msg.data) if msg.data else _NO_STREAM for msg in answers]

    async def _ensure(self, to: Names) -> None:
        async with self._making:
            if to.stream in self._known:
                return
            config = {
                "name": to.stream,
                "subjects": [to.subject],
                "storage": "file",
                "retention": "limits",
                "discard": "new",  # should somebody set limits, appends fail and nothing disappears
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
                "deny_delete": True,
                "num_replicas": self._link.to.replicas,
                "duplicate_window": DEDUP_SECONDS * 1_000_000_000,
            }
            # another process that makes the same stream gets the same answer
            with contextlib.suppress(Conflict):
                await self._link.request(f"STREAM.CREATE.{to.stream}", config, StreamInfo)
            self._known.add(to.stream)

    def _failed(self, answers: Sequence[Answer]) -> SkepError:
        fault = next(answer.error for answer in answers if answer.error)
        error, known = self._link.meaning(fault), "were"
        if _UNKNOWN in answers:
            error, known = self._link.away(), "are known to be"
            error.hint += f"; a repeat with the same ids is stored once within {DEDUP_SECONDS} seconds"
        elif fault == _NO_STREAM.error:
            error = self._link.without_jetstream()
        stored = sum(not answer.error for answer in answers)
        return type(error)(f"{error.message}; {stored} of {len(answers)} messages {known} stored", hint=error.hint)
