"""Places from which streams are read. An open one costs the server a consumer, and the next read one round trip."""

import asyncio
from collections import OrderedDict

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from skep.engines.log.jetstream_link import Link
from skep.engines.log.jetstream_wire import BROKEN, ConsumerInfo, delivered, unpacked
from skep.model.topic import Message

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
