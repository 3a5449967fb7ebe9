"""A space for asyncio: `async with space.get("job", int) as job: …`, or `job = await space.get("job", int)`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from skep.base.errors import SkepError
from skep.client.spaces import Space, TakenTuple
from skep.spaces.api import Field, Fields

T = TypeVar("T")
_LEASE_SECONDS = 60.0


class AsyncSpace:
    """Verbs run in threads of the client; those that wait hold one each, so no more than these wait at a time."""

    def __init__(self, space: Space, threads: ThreadPoolExecutor) -> None:
        self._space = space
        self._threads = threads
        self.name = space.name

    async def put(self, *fields: Field, id: str = "") -> int:
        return await self._run(partial(self._space.put, *fields, id=id))

    def get(self, *template: object, timeout: float | None = None, lease: float = _LEASE_SECONDS) -> "_Taking":
        return _Taking(self._run, partial(self._space.get, *template, timeout=timeout, lease=lease))

    async def getp(self, *template: object, lease: float = _LEASE_SECONDS) -> "AsyncTakenTuple | None":
        taken = await self._run(partial(self._space.getp, *template, lease=lease))
        return AsyncTakenTuple(self._run, taken) if taken else None

    async def query(self, *template: object, timeout: float | None = None) -> Fields:
        return await self._run(partial(self._space.query, *template, timeout=timeout))

    async def queryp(self, *template: object) -> Fields | None:
        return await self._run(partial(self._space.queryp, *template))

    async def get_all(self, *template: object) -> list[Fields]:
        return await self._run(partial(self._space.get_all, *template))

    async def query_all(self, *template: object) -> list[Fields]:
        return await self._run(partial(self._space.query_all, *template))

    async def replace(self, template: tuple[object, ...], fields: Fields) -> int:
        return await self._run(partial(self._space.replace, template, fields))

    async def _run(self, verb: Callable[[], T]) -> T:
        running = self._threads.submit(verb)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            running.add_done_callback(_return)
            raise


def _return(done: "Future[Any]") -> None:
    """Who waited for it has left: what was taken for it goes back."""
    if not done.cancelled() and not done.exception() and isinstance(done.result(), TakenTuple):
        with contextlib.suppress(SkepError):  # it goes back by itself when its lease is over
            done.result().give_back()


class AsyncTakenTuple:
    def __init__(self, run: Callable[[Callable[[], None]], Awaitable[None]], taken: TakenTuple) -> None:
        self._run = run
        self._taken = taken
        self.fields = taken.fields
        self.seq = taken.seq
        self.id = taken.id

    async def acknowledge(self) -> None:
        await self._run(self._taken.acknowledge)

    async def give_back(self) -> None:
        await self._run(self._taken.give_back)

    async def keep(self, lease: float = _LEASE_SECONDS) -> None:
        await self._run(partial(self._taken.keep, lease))


class _Taking:
    """Awaited, it gives the tuple; entered, it ends it too."""

    def __init__(self, run: Callable[[Callable[[], Any]], Awaitable[Any]], take: Callable[[], TakenTuple]) -> None:
        self._run = run
        self._take = take
        self._taken: AsyncTakenTuple | None = None

    def __await__(self) -> Generator[Any, Any, AsyncTakenTuple]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncTakenTuple:
        self._taken = AsyncTakenTuple(self._run, await self._run(self._take))
        return self._taken

    async def __aexit__(self, failure: object, *_: object) -> None:
        assert self._taken is not None
        await (self._taken.acknowledge() if failure is None else self._taken.give_back())
