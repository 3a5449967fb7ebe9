"""A worker's end of the link: dials out, for ever, and carries orders in and outcomes out."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol, Self

from skep.base.clock import Clock
from skep.base.errors import Replaced, SkepError, Unavailable
from skep.base.ids import new_id
from skep.base.loops import first_of
from skep.fleet.api import Offer
from skep.rpc.connect import Dial
from skep.rpc.messages import (
    ASKS_LIMIT,
    PROTOCOL,
    Ack,
    Answer,
    AnswerBody,
    Ask,
    AskBody,
    Beat,
    Begin,
    Broken,
    Declined,
    Done,
    DownFrame,
    Forget,
    Hello,
    Interest,
    Joiner,
    Keys,
    Open,
    Order,
    Outcome,
    Refused,
    Share,
    Stop,
    Time,
    Welcome,
    Wire,
)
from skep.sources.model import Key
from skep.spaces.api import Get, GiveBack, Got
from skep.tasks.model import Run, TaskHold

# Asks of one member, at its own end: numbered, gathered into frames, asked again on every new stream.


class _Waiting(NamedTuple):
    body: AskBody
    future: asyncio.Future[AnswerBody]


class Asking:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._places = asyncio.Semaphore(ASKS_LIMIT)
        self._waiting: dict[int, _Waiting] = {}
        #: not sent on the present stream
        self._fresh: list[Ask | Forget] = []
        self._asked = asyncio.Event()
        self._ended = False

    async def ask(self, body: AskBody, timeout: float | None) -> AnswerBody:
        try:
            async with asyncio.timeout(timeout), self._places:
                return await self._ask(body)
        except TimeoutError:
            raise Unavailable(f"the coordinator did not answer in {timeout:g} s") from None

    async def _ask(self, body: AskBody) -> AnswerBody:
        if self._ended:
            raise _over()
        n = next(self._numbers)
        future: asyncio.Future[AnswerBody] = asyncio.get_running_loop().create_future()
        self._waiting[n] = _Waiting(body, future)
        self._say(Ask(n, body))
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._say(Forget(n))
            elif not future.exception():  # answered in the moment in which it was cancelled
                self._unwanted(body, future.result())
            raise

    def _say(self, message: Ask | Forget) -> None:
        self._fresh.append(message)
        self._asked.set()

    async def send(self, wire: Wire) -> None:
        """On a new stream: everything unanswered, then what comes."""
        new = {message.n for message in self._fresh if isinstance(message, Ask)}
        self._waiting = {n: waiting for n, waiting in self._waiting.items() if not waiting.future.done()}
        self._fresh = [Ask(n, waiting.body, n not in new) for n, waiting in self._waiting.items()]
        self._asked.set()
        while True:
            await self._asked.wait()
            self._asked.clear()
            messages, self._fresh = self._fresh, []
            await wire.write(messages)

    def answered(self, answer: Answer) -> None:
        waiting = self._waiting.pop(answer.n, None)
        if waiting is None:
            return
        if waiting.future.done():
            self._unwanted(waiting.body, answer.body)
        elif isinstance(answer.body, Declined):
            waiting.future.set_exception(answer.body.error())
        else:
            waiting.future.set_result(answer.body)

    def _unwanted(self, asked: AskBody, answer: AnswerBody | Declined) -> None:
        """Who asked was cancelled: what was taken for it goes back at once."""
        if isinstance(asked, Get) and isinstance(answer, Got):
            self._say(Ask(next(self._numbers), GiveBack(asked.space, answer.taken.seq, answer.taken.ticket)))

    def end(self) -> None:
        """There will be no further stream."""
        self._ended = True
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(_over())


def _over() -> SkepError:
    return Unavailable("the link to the coordinator has ended")


log = logging.getLogger(__name__)

METHOD = "/skep.Link/Attach"
_WELCOME_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
#: a reason that stays the same is told in every round of so many
_SAID_AGAIN = 10
#: outcomes sent and not yet acknowledged
_WINDOW = 256
_BATCH = 64
#: orders taken in; what does not fit is repeated by the coordinator
_ORDERS = 10_000
_SHORTEST_BEAT = 0.5


class Outpost(Protocol):
    """What the link asks of its worker."""

    def hello(self) -> Hello: ...

    def beat(self) -> Beat: ...

    async def obey(self, orders: Sequence[Order]) -> None:
        """Returns once they are durable here; doing one twice is harmless."""
        ...

    def begin(self, runs: Sequence[Run]) -> None:
        """Tasks that were placed here; one that is known already is the same one."""
        ...

    def stop(self, tasks: Sequence[TaskHold]) -> None:
        """Tasks that are no longer wanted here, whether or not they run."""
        ...

    def unlock(self, keys: Sequence[Key]) -> None:
        """The credentials to use from now on; not to be stored."""
        ...

    def open(self, asked: Open) -> None:
        """Give what is asked for into a tunnel, or say there why not; returns at once."""
        ...

    def interest(self, sources: Sequence[str]) -> None:
        """People were interested in these; those that are not held here are somebody else's."""
        ...

    def set_clock(self, now: float, said: float) -> None:
        """Its own seems to be off: the coordinator's was `now` when it heard that this one's `said` something else."""
        ...

    def share(self, start: float, end: float) -> None:
        """So much of what upstream hosts permit is this worker's."""
        ...

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        """From the outbox, oldest first, beyond number `after`."""
        ...

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None:
        """These leave the outbox: the coordinator has them, or never will."""
        ...


class LinkClient:
    def __init__(self, outpost: Outpost, to: Dial | str, clock: Clock) -> None:
        """`to`: one target, or several with what proves them."""
        self._outpost = outpost
        self._dial = Dial((to,)) if isinstance(to, str) else to
        self._target = self._dial.targets[0]
        self._clock = clock
        self._outcome = asyncio.Event()
        self._hurry = asyncio.Event()
        self.asking = Asking()
        self.attached = False

    @property
    def here(self) -> Dial:
        """The coordinator that was dialled last, alone."""
        return Dial((self._target,), self._dial.ca)

    def ring(self) -> None:
        """The outbox has grown."""
        self._outcome.set()

    def hurry(self) -> None:
        """The next beat has news that somebody may be watching."""
        self._hurry.set()

    async def ask(self, body: AskBody, timeout: float | None = None) -> AnswerBody:
        """The coordinator's answer, or its error. Waits while detached; asked again after a disconnection."""
        return await self.asking.ask(body, timeout)

    async def run(self) -> None:
        """Attach again and again; ends only by cancellation or when a newer process took this one's place."""
        try:
            await self._run()
        finally:
            self.asking.end()

    async def _run(self) -> None:
        # many members that begin at once divide themselves
        turn, failures = int(self._clock.random() * len(self._dial.targets)), 0
        #: by target, since it was last attached
        said: dict[str, str] = {}
        while True:
            target = self._target = self._dial.targets[turn % len(self._dial.targets)]
            try:
                await self._stream(target)
                reason = "the stream ended"
            except Replaced:
                raise
            except Exception as error:
                reason = _reason(error)
                if isinstance(error, Broken) and not self.attached:
                    reason = await self._dial.explain(target) or reason
            turn, failures = turn + 1, 0 if self.attached else failures + 1
            self.attached = False
            rounds = failures // len(self._dial.targets)
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(rounds, 20)) * (0.5 + self._clock.random())
            is_news = said.get(target) != reason or rounds % _SAID_AGAIN == 0
            said = {**said, target: reason} if failures else {}
            level = logging.WARNING if is_news else logging.DEBUG
            log.log(level, "not attached to %s: %s; again in %.1f s", target, reason, pause)
            await asyncio.sleep(pause)

    async def _stream(self, target: str) -> None:
        async with self._dial.channel(target) as channel:
            call = channel.stream_stream(METHOD)()
            try:
                wire = Wire(call, Joiner(DownFrame))
                beat_every = await self._attach(wire)
                log.info("attached to %s", target)
                await _Attached(self, self._outpost, wire, beat_every).run()
            finally:
                call.cancel()

    async def _attach(self, wire: Wire) -> float:
        async with asyncio.timeout(_WELCOME_SECONDS):
            await wire.write([self._outpost.hello()])
            frame = await wire.read()
        if not frame:
            raise Unavailable("the coordinator closed the stream")
        if isinstance(frame[0], Refused):
            raise _error(frame[0])
        if not isinstance(frame[0], Welcome) or frame[0].protocol != PROTOCOL:
            raise Unavailable(
                f"the coordinator does not speak link protocol {PROTOCOL}", hint="run the same version of Skep on both"
            )
        self.attached = True
        return frame[0].beat_every


class _Attached:
    """One stream, from Welcome to its end."""

    def __init__(self, client: LinkClient, outpost: Outpost, wire: Wire, beat_every: float) -> None:
        self._outpost = outpost
        self._wire = wire
        self._beat_every = beat_every
        self._asking = client.asking
        self._outcome = client._outcome
        self._hurry = client._hurry
        self._unacked: set[int] = set()
        self._orders: dict[int, Order] = {}
        self._ordered = asyncio.Event()
        #: given on when the orders that came before are done
        self._keys: Keys | None = None
        #: done on this stream: a repeat of it only needs its Done again
        self._done: dict[int, Order] = {}

    async def run(self) -> None:
        """Until one part fails."""
        await first_of(self._read(), self._obey(), self._beat(), self._send(), self._asking.send(self._wire))

    async def _read(self) -> None:
        while frame := await self._wire.read():
            acked: list[int] = []
            refused: list[Refused] = []
            for message in frame:
                match message:
                    case Order():
                        if len(self._orders) < _ORDERS:
                            self._orders[message.order] = message
                            self._ordered.set()
                    case Keys():
                        self._keys = message
                        self._ordered.set()
                    case Answer():
                        self._asking.answered(message)
                    case Ack():
                        acked.extend(message.outcomes)
                    case Refused(n=None):
                        raise _error(message)
                    case Refused():
                        refused.append(message)
                    case _:
                        self._tell(message)
            if acked or refused:
                await self._outpost.settle(acked, refused)
                self._unacked.difference_update(acked, (answer.n or 0 for answer in refused))
                self._outcome.set()
        raise Unavailable("the coordinator ended the stream")

    def _tell(self, message: object) -> None:
        match message:
            case Begin(runs):
                self._outpost.begin(runs)
            case Stop(tasks):
                self._outpost.stop(tasks)
            case Interest(sources):
                self._outpost.interest(sources)
            case Time(now, said):
                self._outpost.set_clock(now, said)
            case Share(start, end):
                self._outpost.share(start, end)
            case Open():
                self._outpost.open(message)

    async def _obey(self) -> None:
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            orders, self._orders = self._orders, {}
            keys, self._keys = self._keys, None
            try:
                await self._follow(orders)
            except SkepError as error:  # its disk is full, perhaps: they are repeated, and beats go on
                log.warning("orders cannot be followed: %s", error.message)
            if keys is not None:
                self._outpost.unlock(keys.keys)

    async def _follow(self, orders: dict[int, Order]) -> None:
        if fresh := [order for n, order in sorted(orders.items()) if self._done.get(n) != order]:
            await self._outpost.obey(fresh)
        self._done.update(orders)
        while len(self._done) > _ORDERS:
            del self._done[next(iter(self._done))]
        if orders:
            await self._wire.write([Done(tuple(sorted(orders)))])

    async def _beat(self) -> None:
        while True:
            self._hurry.clear()
            await self._wire.write([self._outpost.beat()])
            await asyncio.sleep(min(_SHORTEST_BEAT, self._beat_every))
            try:
                async with asyncio.timeout(self._beat_every - _SHORTEST_BEAT):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    async def _send(self) -> None:
        sent = -1
        while True:
            self._outcome.clear()
            room = min(_BATCH, _WINDOW - len(self._unacked))
            batch = await self._outpost.outcomes(sent, room) if room > 0 else []
            if not batch:
                await self._outcome.wait()
                continue
            sent = batch[-1].n
            self._unacked.update(outcome.n for outcome in batch)
            await self._wire.write(batch)


def _error(refused: Refused) -> SkepError:
    kind = Replaced if refused.code == Replaced.code else Unavailable
    return kind(refused.message, hint=refused.hint)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if not isinstance(error, SkepError):
        log.error("the stream failed", exc_info=error)
        return f"{type(error).__name__}: {error}"
    return f"{error.message} ({error.hint})" if error.hint else error.message


# An end of the link that holds nothing: no outbox, no orders, only asks. What managers are.

_NOTHING = Offer()


class Peer:
    """`async with Peer(target, token, ("manager",), clock).running() as peer: await peer.ask(…)`"""

    def __init__(
        self,
        to: Dial | str,
        token: str,
        roles: tuple[str, ...],
        clock: Clock,
        *,
        member: str = "",
        offer: Offer = _NOTHING,
    ) -> None:
        now = clock.now()
        self.member = member or new_id(roles[0][:3], now)
        self.boot = int(now * 1000)
        self.status: Callable[[], str] = lambda: "idle"
        self._hello = Hello(PROTOCOL, self.member, token, self.boot, roles, offer)
        self.link = LinkClient(self, to, clock)

    async def ask(self, body: AskBody, timeout: float | None = None) -> AnswerBody:
        return await self.link.ask(body, timeout)

    async def run(self) -> None:
        await self.link.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        task = asyncio.create_task(self.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # what the link asks of it

    def hello(self) -> Hello:
        return self._hello

    def beat(self) -> Beat:
        return Beat(self.status())

    async def obey(self, orders: Sequence[Order]) -> None:
        """A peer without sources gets none."""

    def begin(self, runs: Sequence[Run]) -> None: ...

    def unlock(self, keys: Sequence[Key]) -> None: ...

    def interest(self, sources: Sequence[str]) -> None: ...

    def open(self, asked: Open) -> None: ...

    def share(self, start: float, end: float) -> None: ...

    def set_clock(self, now: float, said: float) -> None: ...

    def stop(self, tasks: Sequence[TaskHold]) -> None: ...

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return []

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None: ...
