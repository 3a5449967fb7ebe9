"""The connection to NATS: made again whenever it is gone, with errors for people that never hold a password."""

import asyncio
import contextlib
import re
import string
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from math import inf
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoServersError, StaleConnectionError

from skep.base.errors import BadInput, Conflict, NoSpace, NotFound, SkepError, TooLarge, Unavailable
from skep.topics.api import Draft, Message, Part

# Where NATS is, and how to be let in there.


class Address(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    user: str | None
    password: str | None
    replicas: int
    #: seconds that a call waits for a server that is away or silent
    patience: float

    def __str__(self) -> str:
        return ", ".join(self.hosts)


def address(url: str) -> Address:
    """`nats://[user:password@ | token@]host[:port][,host[:port]…][?replicas=N&patience=SECONDS]`"""
    wrong = BadInput(
        "the NATS URL for log cannot be understood",
        hint="nats://user:password@host1:4222,host2:4222?replicas=1&patience=5",
    )
    try:
        place, _, query = url.partition("://")[2].partition("?")
        who, at, where = place.rpartition("@")
        user, colon, password = who.partition(":")
        hosts = tuple(_with_port(host) for host in where.removesuffix("/").split(","))
        options = parse_qs(query, strict_parsing=True, keep_blank_values=True) if query else {}
        replicas = int(options.pop("replicas", ["1"])[0])
        patience = float(options.pop("patience", ["5"])[0])
    except ValueError:
        raise wrong from None  # its words may hold the password
    if options or replicas < 1 or not 0 < patience < inf:
        raise wrong
    return Address(hosts, unquote(user) if at else None, unquote(password) if colon else None, replicas, patience)


def _with_port(host: str) -> str:
    split = urlsplit(f"nats://{host}")
    if not split.hostname or split.netloc != host:
        raise ValueError
    return host if split.port else f"{host.rstrip(':')}:4222"


# Questions to the server whose answers come to one address, so that many can be under way at once.


class Answers:
    def __init__(self) -> None:
        self._inbox = ""
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}

    async def begin(self, client: Client) -> None:
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def ask(
        self, client: Client, subject: str, body: bytes, headers: dict[str, str] | None = None
    ) -> "asyncio.Future[Msg | None]":
        """Returns when the question is on its way; its answer is None when the connection broke before."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        future: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = future
        try:
            await client.publish(subject, body, reply, headers)
        except BaseException:
            self._waiting.pop(reply, None)
            raise
        return future

    def lose(self) -> None:
        """The connection broke: nobody knows what became of the questions."""
        self.forget(set(self._waiting.values()))

    def forget(self, asked: "set[asyncio.Future[Msg | None]]") -> None:
        self._waiting = {reply: future for reply, future in self._waiting.items() if future not in asked}
        for future in asked:
            if not future.done():
                future.set_result(None)

    async def _heard(self, msg: Msg) -> None:
        future = self._waiting.pop(msg.subject, None)
        if future is not None and not future.done():
            future.set_result(msg)


# How partitions, drafts and the server's answers look on NATS.

#: what a client says when its connection is gone; RuntimeError: what uvloop calls a broken pipe
BROKEN = (Error, OSError, RuntimeError)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: stays as it is in a header; all else is percent-encoded: headers lose spaces and line ends
_PLAIN = (string.punctuation + string.digits + string.ascii_letters).replace("%", "")
_ID, _MORE = "Nats-Msg-Id", "Skep"
_more = msgspec.json.Decoder(tuple[str, dict[str, str]])

#: payload and headers of a message
Packed = tuple[bytes, dict[str, str] | None]


class Names(NamedTuple):
    stream: str
    subject: str
    bell: str


def names(part: Part) -> Names:
    """A topic's dots become `~`, which no topic contains: a stream's name and a subject's token may not hold dots."""
    if not _TOPIC.fullmatch(part.topic) or part.partition < 0:
        raise BadInput(f"{part.topic[:60]!r} partition {part.partition} is no partition of a topic")
    token = f"{part.partition}_{part.topic.replace('.', '~')}"
    return Names(f"skep_{token}", f"skep.log.{token}", f"skep.bell.{token}")


def packed(draft: Draft) -> Packed:
    headers = {}
    try:
        if draft.id:
            headers[_ID] = quote(draft.id, safe=_PLAIN)
        if draft.key or draft.headers:
            # one header for all: the names of NATS' own are less free than ours
            headers[_MORE] = quote(msgspec.json.encode((draft.key, draft.headers)), safe=_PLAIN)
    except UnicodeEncodeError as error:
        raise BadInput("the id, key or headers of a message are not valid Unicode") from error
    return draft.body, headers or None


def size(message: Packed) -> int:
    """What the server counts against its largest payload."""
    body, headers = message
    lines = sum(len(name) + len(value) + 4 for name, value in headers.items()) + 12 if headers else 0
    return len(body) + lines


class Delivered(NamedTuple):
    """What the reply address of a delivered message tells."""

    sequence: int
    at: float
    pending: int


def delivered(reply: str) -> Delivered:
    # $JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.COUNT.NANOSECONDS.PENDING; newer servers put domain and account after ACK
    words = reply.split(".")
    known = words[5:9] if len(words) == 9 else words[7:11]
    return Delivered(int(known[0]), int(known[2]) / 1e9, int(known[3]))


def unpacked(told: Delivered, msg: Msg) -> Message:
    headers = msg.headers or {}
    key, own = _more.decode(unquote(headers[_MORE])) if _MORE in headers else ("", {})
    return Message(told.sequence - 1, told.at, unquote(headers.get(_ID, "")), key, own, msg.data)


class Fault(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the server says to a message it was given to store, or to a request without further answer."""

    seq: int = 0
    error: Fault | None = None


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    state: StreamState


class ConsumerInfo(msgspec.Struct, frozen=True):
    name: str


T = TypeVar("T")
#: the server's numbers for: account, server, memory and storage limits
_NO_SPACE = {10002, 10023, 10028, 10047}
_NO_SPACE_WORDS = ("no space left", "maximum bytes", "maximum messages", "insufficient")
_TOO_LARGE = 10054
_NOT_ENABLED = {10039, 10076}
#: servers that are to keep a stream have not been heard of
_NO_PEERS = 10005
#: a stream of that name exists and somebody gave it other settings
CONFIGURED_OTHERWISE = 10058
#: seconds between attempts to connect, and between signs of life
_PAUSE, _PING = 0.2, 10
#: after our patience, for what lay unread because it was us who stood still
_SECOND_LOOK = 1.0
_CLOSE_SECONDS = 1.0


class Link:
    """One client for all, and another one when it is gone.

    A client does not come back by itself: it would send what its callers were already told has failed.
    """

    def __init__(
        self,
        to: Address,
        patience: float,
        *,
        begin: Callable[[Client], Awaitable[None]],
        back: Callable[[], None],
    ) -> None:
        """`begin` subscribes with a new client; `back` is called when there is one after another was lost."""
        self.to = to
        self.patience = patience
        #: how often the server was lost, and with it what it knew of us
        self.turn = 0
        self._begin, self._back = begin, back
        self._answers = Answers()
        self._client: Client | None = None
        self._closed = False
        self._connecting = asyncio.Lock()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        #: the server's own last words, and how the connection failed
        self._refused = self._broken = ""

    async def start(self) -> None:
        await self.client()
        self._keeper = asyncio.create_task(self._keep(), name="keeps the connection to NATS")

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        async with self._connecting:
            self._closed = True
            if self._client is not None:
                await _close(self._client)

    async def client(self) -> Client:
        """One that is connected; waited for as long as patience lasts."""
        if self._client is not None and self._client.is_connected:
            return self._client
        try:
            async with asyncio.timeout(self.patience), self._connecting:
                if self._closed:
                    raise Unavailable("the log is closed")
                while self._client is None or not self._client.is_connected:
                    self._client = await self._connected()
                return self._client
        except TimeoutError:
            raise self.away() from None

    async def request(self, verb: str, body: object, answer: type[T]) -> T:
        """One call of JetStream's interface; all that we make do no harm when they are made twice."""
        turn, asked = self.turn, (msgspec.json.encode(body), None)
        [msg] = await self.ask(f"$JS.API.{verb}", [asked])
        if msg is None and turn != self.turn:  # the connection broke on the way
            [msg] = await self.ask(f"$JS.API.{verb}", [asked])
        if msg is None:
            raise self.away()
        if not msg.data:  # nobody is there who would answer
            raise self.without_jetstream()
        fault = msgspec.json.decode(msg.data, type=Answer).error
        if fault is not None:
            raise self.meaning(fault)
        return msgspec.json.decode(msg.data, type=answer)

    async def ask(
        self, subject: str, messages: Sequence[Packed], then: Callable[[], None] = lambda: None
    ) -> list[Msg | None]:
        """Publishes all in order and returns the answers; None where there was none within our patience.

        `then` is called for each when it is settled, also when nobody waits for it any more.
        """
        client, turn = await self.client(), self.turn
        asked: list[asyncio.Future[Msg | None]] = []
        with contextlib.suppress(*BROKEN):
            for body, headers in messages:
                asked.append(await self._answers.ask(client, subject, body, headers))
                asked[-1].add_done_callback(lambda _: then())
                if turn != self.turn:
                    break  # the rest would be stored after a gap
        awaited = set(asked)
        while awaited:
            done, awaited = await asyncio.wait(awaited, timeout=self.patience)
            if not done:
                done, awaited = await asyncio.wait(awaited, timeout=_SECOND_LOOK)
            if not done:
                self._answers.forget(awaited)
        return [future.result() for future in asked] + [None] * (len(messages) - len(asked))

    def away(self) -> Unavailable:
        if self._client is not None and self._client.is_connected and not self._refused:
            return Unavailable(
                f"JetStream at {self.to} does not answer",
                hint="look at the log of nats-server; after its disk was full it is silent until it is restarted",
            )
        why = self._refused or self._broken or "no connection"
        return Unavailable(f"NATS does not answer: {why}", hint=f"is it running at {self.to}, and reachable from here?")

    def without_jetstream(self) -> Unavailable:
        return Unavailable(
            f"NATS at {self.to} answers without JetStream",
            hint="start nats-server with -js; it also stops JetStream when its disk was full, until it is restarted",
        )

    def meaning(self, fault: Fault) -> SkepError:
        text = f"NATS at {self.to} refused: {fault.description}"
        if fault.err_code in _NO_SPACE or any(words in fault.description for words in _NO_SPACE_WORDS):
            return NoSpace(text, hint="give JetStream more room, or trim topics")
        if fault.err_code == _TOO_LARGE:
            return TooLarge(text)
        if fault.code == 404:
            return NotFound(text)
        if fault.err_code == CONFIGURED_OTHERWISE:
            return Conflict(text)
        if fault.err_code in _NOT_ENABLED:
            return self.without_jetstream()
        if fault.code == 503 or fault.err_code == _NO_PEERS:
            return Unavailable(text, hint="look at the log of nats-server")
        return SkepError(text)

    async def _keep(self) -> None:
        """Whoever only listens asks for nothing: so it is asked here."""
        while True:
            await self._lost.wait()
            with contextlib.suppress(Unavailable):
                await self.client()
                self._lost.clear()

    async def _connected(self) -> Client | None:
        client = Client()
        try:
            await client.connect(
                [f"nats://{host}" for host in self.to.hosts],
                user=self.to.user if self.to.password is not None else None,
                password=self.to.password,
                token=self.to.user if self.to.password is None else None,
                name="skep",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=_PAUSE,  # type: ignore[arg-type]  # fractions work
                ping_interval=_PING,
                error_cb=self._noted,
                closed_cb=self._ended,
            )
            await self._answers.begin(client)
            await self._begin(client)
            await client.flush()
        except BROKEN as error:
            await self._noted(error)
            await _close(client)
            # its client may have swallowed that we were cancelled, or that patience is over
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from None
            await asyncio.sleep(_PAUSE)
            return None
        except BaseException:
            await _close(client)
            raise
        self._refused = self._broken = ""
        if self.turn:
            self._back()
        return client

    async def _noted(self, error: Exception) -> None:
        said = str(error).removeprefix("nats: ") or type(error).__name__
        if isinstance(error, (OSError, RuntimeError, StaleConnectionError)):
            self._broken = said
        elif not isinstance(error, NoServersError):
            self._refused = said

    async def _ended(self) -> None:
        self.turn += 1
        self._answers.lose()
        self._lost.set()


async def _close(client: Client) -> None:
    """One that is half connected may wait for ever for a server that has gone meanwhile."""
    with contextlib.suppress(TimeoutError, *BROKEN):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()
