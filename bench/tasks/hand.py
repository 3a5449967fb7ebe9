"""A worker process that does nothing but tasks that do nothing.

PYTHONPATH=. python bench/tasks/hand.py LINK TOKEN SLOTS
"""

import asyncio
import sys
from collections.abc import Sequence

import uvloop

from skep.base.clock import SystemClock
from skep.fleet.api import Offer
from skep.rpc.client import LinkClient
from skep.rpc.messages import PROTOCOL, Beat, Hello, Open, Order, Outcome, Refused
from skep.sources.model import Key
from skep.tasks.model import Run, TaskHold
from skep.tasks.worker import Doer


class Hand:
    def __init__(self, link: str, token: str, slots: int) -> None:
        self._token = token
        self._offer = Offer(("noop",), {"own": slots})
        self.client = LinkClient(self, link, SystemClock())
        self.doer = Doer({"noop": _noop}, self.client.ask, lambda: self._offer, lambda run: "", SystemClock())

    def hello(self) -> Hello:
        return Hello(PROTOCOL, "wrk_bench", self._token, 1, offer=self._offer, running=self.doer.running)

    def beat(self) -> Beat:
        return Beat("idle")

    async def obey(self, orders: Sequence[Order]) -> None: ...

    def begin(self, runs: Sequence[Run]) -> None:
        self.doer.begin(runs)

    def unlock(self, keys: Sequence[Key]) -> None: ...

    def interest(self, sources: Sequence[str]) -> None: ...

    def open(self, asked: Open) -> None: ...

    def set_clock(self, now: float, said: float) -> None: ...

    def share(self, start: float, end: float) -> None: ...

    def stop(self, tasks: Sequence[TaskHold]) -> None:
        self.doer.stop(tasks)

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return []

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None: ...


async def _noop(run: Run) -> None: ...


async def main() -> None:
    hand = Hand(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    await asyncio.gather(hand.client.run(), hand.doer.run())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
