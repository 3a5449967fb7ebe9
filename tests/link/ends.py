"""The two ends of a link as small as they can be: a desk that remembers, an outpost with an outbox in memory."""

import asyncio
import time
from collections.abc import Callable, Sequence

from skep.base.errors import NotFound
from skep.rpc.messages import (
    PROTOCOL,
    Ack,
    AnswerBody,
    AskBody,
    Beat,
    Failed,
    FetchNow,
    Hello,
    Open,
    Order,
    Outcome,
    Refused,
)
from skep.sources.model import Failure, Key
from skep.spaces.api import Get, Got, Placed, Put, Taken
from skep.tasks.model import Run, TaskHold
from tests.link.quiet import QuietDesk

TOKEN = "right"


class MemoryDesk(QuietDesk):
    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[int, Order] = {}
        self.confirmed: list[int] = []
        self.got: list[int] = []
        self.hellos: list[Hello] = []
        #: of each hello: it came by the socket
        self.local: list[bool] = []
        #: when given, what ends is in `ending` until it is set
        self.ending: list[str] = []
        self.lingering: asyncio.Event | None = None
        self.left: list[str] = []
        #: those of them that were not sent away
        self.down: list[str] = []
        #: awaited before outcomes are answered
        self.slow: asyncio.Event | None = None
        self.refuse: set[int] = set()
        self.asked: list[tuple[AskBody, bool]] = []
        self.opened: dict[str, asyncio.Event] = {}
        #: gets that wait, or have waited
        self.waiting = 0
        self.cancelled: list[str] = []

    def order(self, n: int, source: str = "src_1") -> None:
        self.pending[n] = Order(n, FetchNow(source, 1))
        self.bells.ring(["orders"])

    async def hello(self, hello: Hello, *, local: bool) -> str | Refused:
        if hello.token != TOKEN:
            return Refused(None, "needs_token", "this token is not known", "ask for another")
        self.hellos.append(hello)
        self.local.append(local)
        await self.tell()
        return hello.member

    async def done(self, member: str, orders: Sequence[int]) -> None:
        for n in orders:
            if self.pending.pop(n, None):
                self.confirmed.append(n)
        await self.tell()

    async def outcomes(self, member: str, outcomes: Sequence[Outcome]) -> list[Ack | Refused]:
        if self.slow is not None:
            await self.slow.wait()
        self.got += [outcome.n for outcome in outcomes]
        await self.tell()
        refused = [Refused(o.n, "stale", "another epoch") for o in outcomes if o.n in self.refuse]
        return [Ack(tuple(o.n for o in outcomes if o.n not in self.refuse)), *refused]

    async def orders(self, member: str) -> list[Order]:
        return [self.pending[n] for n in sorted(self.pending)][:50]

    async def runs(self, member: str) -> tuple[list[Run], set[TaskHold]]:
        return [], set()

    async def ask(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        """Put is answered with the sum of its fields, Get when its space is opened, anything else is not found."""
        self.asked.append((body, again))
        await self.tell()
        match body:
            case Put(_, fields):
                return Placed(sum(n for n in fields if isinstance(n, int)))
            case Get(space, _, ticket):
                self.waiting += 1
                try:
                    await self.opened.setdefault(space, asyncio.Event()).wait()
                except asyncio.CancelledError:
                    await self._linger(space)
                    self.cancelled.append(space)
                    await self.tell()
                    raise
                return Got(Taken(1, (space,), ticket=ticket, lease_until=0.0))
            case _:
                raise NotFound("there is no such thing", hint="look elsewhere")

    async def gone(self, member: str, boot: int, *, down: bool) -> None:
        await self._linger(member)
        self.left.append(member)
        self.down += [member] if down else []
        await self.tell()

    async def _linger(self, who: str) -> None:
        if self.lingering is not None:
            self.ending.append(who)
            await self.tell()
            await self.lingering.wait()


class MemoryOutpost:
    def __init__(
        self,
        *,
        token: str = TOKEN,
        boot: int = 1,
        member: str = "wrk_1",
        protocol: int = PROTOCOL,
        off: float | None = None,
    ) -> None:
        """`off`: by how many seconds its clock is; None: it has none."""
        self._off = off
        self.times: list[float] = []
        self._hello = Hello(protocol, member, token, boot, at=self._at())
        self.outbox: dict[int, Outcome] = {}
        self.refused: list[Refused] = []
        self.keys: list[tuple[Key, ...]] = []
        self.opened: list[Open] = []
        self.wanted: list[str] = []
        self.done: list[Order] = []
        self.changed = asyncio.Condition()
        #: while set, orders are taken in but never become durable
        self.stuck: asyncio.Event | None = None

    def begin(self, runs: Sequence[Run]) -> None: ...

    def stop(self, tasks: Sequence[TaskHold]) -> None: ...

    def unlock(self, keys: Sequence[Key]) -> None:
        self.keys.append(tuple(keys))

    def share(self, start: float, end: float) -> None: ...

    def set_clock(self, now: float, said: float) -> None:
        self.times.append(now)

    def _at(self) -> float:
        return 0.0 if self._off is None else time.time() + self._off

    def open(self, asked: Open) -> None:
        self.opened.append(asked)

    def interest(self, sources: Sequence[str]) -> None:
        self.wanted += sources

    async def until(self, ready: Callable[[], bool]) -> None:
        async with self.changed, asyncio.timeout(60):
            await self.changed.wait_for(ready)

    def post(self, numbers: Sequence[int], padding: int = 0) -> None:
        for n in numbers:
            body = Failed(Failure("network", "x" * padding), 1)
            self.outbox[n] = Outcome(n, f"src_{n % 7}", 1, 0.0, 0.0, body)

    def hello(self) -> Hello:
        return self._hello

    def beat(self) -> Beat:
        return Beat("idle", at=self._at())

    async def obey(self, orders: Sequence[Order]) -> None:
        if self.stuck is not None:
            await self.stuck.wait()
        self.done += orders
        async with self.changed:
            self.changed.notify_all()

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return [self.outbox[n] for n in sorted(self.outbox) if n > after][:limit]

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None:
        self.refused += refused
        for n in [*acked, *(answer.n for answer in refused)]:
            self.outbox.pop(n or 0, None)
        async with self.changed:
            self.changed.notify_all()
