"""An end of the link that holds nothing: no outbox, no orders, only asks. What managers are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from skep.clock import Clock
from skep.link.client import LinkClient
from skep.link.dial import Dial
from skep.link.messages import PROTOCOL, AnswerBody, AskBody, Beat, Hello, Open, Order, Outcome, Refused
from skep.model.credential import Key
from skep.model.ids import new_id
from skep.model.member import Offer
from skep.model.task import Run, TaskHold

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
