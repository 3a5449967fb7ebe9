"""The log on NATS JetStream: one stream for each partition, whose sequence numbers less one are our offsets.

What it promises is what nats-server 2.9 does: messages are acknowledged when the server has taken them, before they are
on disk; the drafts of one append are stored one after the other, not all or none; ids are remembered for two minutes,
also those of trimmed messages. A message's time is the server's.

The user of the URL needs `skep.>`, `_INBOX.>` and `$JS.API.>`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from skep.engines.db.base import Bell, Database
from skep.engines.db.bells import Bells
from skep.engines.log.base import Log, Promises
from skep.engines.log.jetstream_address import Address, address
from skep.engines.log.jetstream_bells import Ringer
from skep.engines.log.jetstream_link import Link
from skep.engines.log.jetstream_readers import Readers
from skep.engines.log.jetstream_wire import Answer, Fault, Names, Packed, StreamInfo, StreamState, names, packed, size
from skep.errors import Conflict, NotFound, SkepError, TooLarge
from skep.model.topic import Draft, Message, Part

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
