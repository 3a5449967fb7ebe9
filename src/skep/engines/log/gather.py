"""Appends asked for while a transaction is under way are stored together by the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from skep.errors import NoSpace, Unavailable
from skep.model.topic import Draft, Part

#: stores the drafts of several parts in one transaction, and gives the offsets of each
Store = Callable[[list[tuple[Part, list[Draft]]]], Awaitable[list[list[int]]]]


class _Append(NamedTuple):
    part: Part
    drafts: Sequence[Draft]
    offsets: "asyncio.Future[list[int]]"


class Gather:
    def __init__(self, store: Store, *, capacity: int = 4096) -> None:
        """At most `capacity` appends wait to be stored; further callers wait for a place."""
        self._store = store
        self._places = asyncio.Semaphore(capacity)
        self._asked: list[_Append] = []
        self._storing: asyncio.Task[None] | None = None

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]:
        async with self._places:
            asked = _Append(part, drafts, asyncio.get_running_loop().create_future())
            self._asked.append(asked)
            if self._storing is None:
                # its own task: a caller that is cancelled does not take the others along
                self._storing = asyncio.create_task(self._store_all())
            return await asked.offsets

    async def _store_all(self) -> None:
        group: list[_Append] = []
        try:
            while self._asked:
                group, self._asked = self._asked, []
                await self._store_group(group)
        finally:
            self._storing = None
            for left in (*group, *self._asked):
                left.offsets.cancel()  # only when this task itself was cancelled: the others are done

    async def _store_group(self, group: list[_Append]) -> None:
        parts = _by_part(group)
        try:
            offsets = await self._store(parts)
        except Exception as error:
            if len(group) > 1 and not isinstance(error, (Unavailable, NoSpace)):
                for asked in group:  # one of them is bad, and fails alone
                    await self._store_group([asked])
                return
            for asked in group:
                if not asked.offsets.done():
                    asked.offsets.set_exception(error)
        else:
            _hand_out(group, {part: iter(given) for (part, _), given in zip(parts, offsets, strict=True)})


def _by_part(group: Sequence[_Append]) -> list[tuple[Part, list[Draft]]]:
    """Sorted, so that two processes that store several parts never wait for each other."""
    together: dict[Part, list[Draft]] = {}
    for asked in group:
        together.setdefault(asked.part, []).extend(asked.drafts)
    return sorted(together.items(), key=lambda item: (item[0].topic, item[0].partition))


def _hand_out(group: Sequence[_Append], rest: dict[Part, Iterator[int]]) -> None:
    """To each append its own, in the order in which they were put together."""
    for asked in group:
        own = list(islice(rest[asked.part], len(asked.drafts)))
        if not asked.offsets.done():
            asked.offsets.set_result(own)
