"""A fixed number of tasks that take whatever is ready: no task, queue or lock per piece of work."""

import asyncio
from collections.abc import Awaitable, Callable


class Hands:
    def __init__(self, size: int, take: Callable[[], str | None], work: Callable[[str], Awaitable[None]]) -> None:
        self._size = size
        self._take = take
        self._work = work
        self._idle: list[asyncio.Future[str]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        for _ in range(self._size):
            group.create_task(self._hand())

    def feed(self) -> None:
        """Something may be ready: give it to idle hands."""
        while self._idle and (key := self._take()) is not None:
            self._idle.pop().set_result(key)

    async def _hand(self) -> None:
        while True:
            key = self._take()
            if key is None:
                waiting = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                key = await waiting
            await self._work(key)
