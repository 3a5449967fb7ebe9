"""One attached member, seen from the coordinator: a few loops over one stream, so that none waits for another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from skep.base.errors import BadInput, Busy, SkepError
from skep.rpc.messages import (
    ASKS_LIMIT,
    Answer,
    AnswerBody,
    Ask,
    Beat,
    Begin,
    Declined,
    Done,
    Forget,
    Hello,
    Interest,
    Keys,
    Outcome,
    Refused,
    Share,
    Stop,
    Time,
    Wire,
)
from skep.sources.model import Key
from skep.tasks.model import Renewed, Reported, TaskHold

if TYPE_CHECKING:
    from skep.rpc.server import Desk

# Asks of one stream, at the coordinator: each runs by itself; the answers of one turn leave together.

log = logging.getLogger(__name__)


class Asks:
    def __init__(self, wire: Wire, do: Callable[[Ask], Awaitable[AnswerBody]]) -> None:
        self._wire = wire
        self._do = do
        self._running: dict[int, asyncio.Task[None]] = {}
        self._answers: list[Answer] = []
        self._answered = asyncio.Event()

    def take(self, ask: Ask) -> None:
        if len(self._answers) > 2 * ASKS_LIMIT:
            raise BadInput("asks come in, but their answers are not read")
        if ask.n in self._running:
            raise BadInput(f"ask {ask.n} is under way already")
        if len(self._running) >= ASKS_LIMIT:
            self._answer(ask.n, Declined.of(Busy(f"{ASKS_LIMIT} asks are under way", hint="wait for their answers")))
        else:
            self._running[ask.n] = asyncio.create_task(self._run(ask))

    def forget(self, n: int) -> None:
        if task := self._running.get(n):
            task.cancel()

    async def send(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            answers, self._answers = self._answers, []
            await self._wire.write(answers)

    async def close(self) -> None:
        """Returns once none is under way."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, ask: Ask) -> None:
        try:
            body: AnswerBody | Declined = await self._do(ask)
        except SkepError as error:
            body = Declined.of(error)
        except asyncio.CancelledError:
            self._answer(ask.n, Declined("forgotten", "nobody waits for it"))
            raise
        except Exception:
            log.exception("an ask failed")
            body = Declined.of(SkepError("the coordinator failed", hint="its log says more"))
        finally:
            del self._running[ask.n]
        self._answer(ask.n, body)

    def _answer(self, n: int, body: AnswerBody | Declined) -> None:
        self._answers.append(Answer(n, body))
        self._answered.set()


#: outcomes taken in before the reader waits for the desk; more than a client's window, so that beats pass
_INBOX = 1024
_BATCH = 256
#: seconds by which a member's clock may be off
_OFF = 5.0
_BELL_SECONDS = 60.0
#: beats that may fail to come before the stream counts as dead
_SILENT_BEATS, _LEAST_SILENCE = 6, 30.0


class Session:
    def __init__(self, desk: "Desk", wire: Wire, hello: Hello, beat_every: float) -> None:
        self._desk = desk
        self.wire = wire
        self._hello = hello
        self.member = hello.member
        self.boot = hello.boot
        self._silence = max(_LEAST_SILENCE, _SILENT_BEATS * beat_every)
        self._inbox: asyncio.Queue[Outcome] = asyncio.Queue(_INBOX)
        self._asks = Asks(wire, self._ask)
        self._mirrors = hello.roles[0] == "worker" and hello.offer.mirror
        self._begun: set[TaskHold] = set(hello.running)
        self._look = asyncio.Event()
        self._ordered = asyncio.Event()
        self._repeat = False
        #: as it was told last
        self._share = (0.0, 1.0)
        self._ending: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self.replaced = self.stopping = False
        self.over = asyncio.Event()

    async def end(self, reason: Refused) -> None:
        """Returns once nothing of this member is in work any more."""
        self.replaced, self.stopping = reason.code == "replaced", reason.code == "stopping"
        self.leave(reason)
        await self.over.wait()

    def leave(self, reason: Refused | None = None) -> None:
        if not self._ending.done():
            self._ending.set_result(reason)

    async def run(self) -> Refused | None:
        """Until the member leaves, another takes its place or one of the two misbehaves; says which."""
        await self._set_clock(self._hello.at)
        parts = [self._read(), self._settle(), self._push(), self._listen(), self._runs(), self._asks.send()]
        parts.append(self._desk.watch(self._hello))
        if self._mirrors:
            parts += [self._confide(), self._open()]
        work = [asyncio.create_task(part) for part in parts]
        try:
            waited: list[asyncio.Future[Any]] = [*work, self._ending]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            results = await asyncio.gather(*work, return_exceptions=True)
            await self._asks.close()
        if self._ending.done():
            return self._ending.result()
        for error in results:
            if isinstance(error, SkepError):
                return Refused(None, error.code, error.message, error.hint)
            if isinstance(error, Exception):
                log.error("the stream of %s failed", self.member, exc_info=error)
                return Refused(None, "internal", "the coordinator failed", "its log says more")
        return None

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    frame = await self.wire.read()
            except TimeoutError:
                raise BadInput(f"no heartbeat for {self._silence:.0f} seconds") from None
            if not frame:
                return
            for message in frame:
                await self._take(message)

    async def _take(self, message: object) -> None:
        match message:
            case Ask():
                self._asks.take(message)
            case Forget(n):
                self._asks.forget(n)
            case Outcome():
                await self._inbox.put(message)
            case Beat():
                await self._desk.beat(self.member, self.boot, message)
                await self._set_clock(message.at)
                if self._mirrors and (share := await self._desk.share(self.member)) != self._share:
                    self._share = share
                    await self.wire.write([Share(*share)])
                self._repeat = True
                self._look.set()
            case Done():
                await self._desk.done(self.member, message.orders)
                self._look.set()
            case Hello():
                raise BadInput("a stream has one Hello only")

    async def _set_clock(self, said: float) -> None:
        now = self._desk.now()
        if said and abs(now - said) > _OFF:
            await self.wire.write([Time(now, said)])

    async def _ask(self, ask: Ask) -> AnswerBody:
        answer = await self._desk.ask(self.member, self.boot, ask.body, ask.again)
        if isinstance(ask.body, Reported):
            over = (one for one in ask.body.reports if one.state not in ("ACCEPTED", "RUNNING"))
            self._begun.difference_update((one.task, one.attempt) for one in over)
        if isinstance(answer, Renewed):
            self._begun.update((run.task, run.attempt) for run in answer.begin)
        return answer

    async def _settle(self) -> None:
        while True:
            batch = [await self._inbox.get()]
            while not self._inbox.empty() and len(batch) < _BATCH:
                batch.append(self._inbox.get_nowait())
            await self.wire.write(await self._desk.outcomes(self.member, batch))

    async def _push(self) -> None:
        sent: set[int] = set()
        while True:
            repeat, self._repeat = self._repeat, False
            orders = await self._desk.orders(self.member)
            await self.wire.write([order for order in orders if repeat or order.order not in sent])
            sent = {order.order for order in orders}
            self._ordered.set()
            await self._look.wait()
            self._look.clear()

    async def _listen(self) -> None:
        async with self._desk.bell(self.member) as bell:
            self._look.set()
            while True:
                if await bell.wait(_BELL_SECONDS):
                    self._look.set()

    async def _confide(self) -> None:
        """What a worker keeps in memory only: credentials at once, what people are interested in now and then.

        It polls when it has the credentials: before that, who comes back must hear what was given to others meanwhile.
        """
        await self._ordered.wait()
        sent: tuple[Key, ...] | None = None
        count, _ = self._desk.interest(0)
        async with self._desk.keys_bell() as bell:
            while True:
                keys = await self._desk.keys()
                if keys != sent:
                    await self.wire.write([Keys(keys)])
                sent = keys
                count, sources = self._desk.interest(count)
                if sources:
                    await self.wire.write([Interest(tuple(sources))])
                await bell.wait(_BELL_SECONDS)

    async def _open(self) -> None:
        async with self._desk.openings_bell(self.member) as bell:
            while True:
                await self.wire.write(await self._desk.openings(self.member))
                await bell.wait(_BELL_SECONDS)

    async def _runs(self) -> None:
        """Keep the worker at what the coordinator wants it to run: what is new begins, what is gone stops."""
        async with self._desk.runs_bell(self.member) as bell:
            while True:
                known = frozenset(self._begun)  # what an answer begins from here on is not in what is read now
                begin, wanted = await self._desk.runs(self.member)
                fresh = tuple(run for run in begin if (run.task, run.attempt) not in self._begun)
                gone = tuple(known - wanted)
                if fresh or gone:
                    self._begun.difference_update(gone)
                    self._begun.update((run.task, run.attempt) for run in fresh)
                    await self.wire.write([Begin(fresh), Stop(gone)])
                await bell.wait(_BELL_SECONDS)
