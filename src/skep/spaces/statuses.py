"""The update-status protocol: every process has exactly one tuple (id, what it does, since when) in the space `status`.

Replaced in one step, so that it is never missing or there twice; gone when the process leaves. What a process left that
died, or whose coordinator did, is not shown any more and swept away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from skep.clock import Clock
from skep.engines.db.base import Database
from skep.model.answers import ProcessStatus
from skep.model.space import Typed, template_of
from skep.spaces import store
from skep.spaces.match import Pattern

SPACE = "status"
IDLE = "idle"
_ANY = template_of((str, str, float))
#: a serving process says so often that it is there; it counts as gone when it did not three times
_EVERY_SECONDS = 10.0
_MOST = 10_000


class Statuses:
    def __init__(self, db: Database, clock: Clock, own: str) -> None:
        """`own` is the id of this process."""
        self._db = db
        self._clock = clock
        self._own = own
        self._told: dict[str, str] = {}
        self._shown: dict[str, str] = {}

    async def tell(self, process: str, doing: str) -> None:
        """`doing` is "idle" or what it works on."""
        before = self._told.get(process, IDLE)
        if doing != IDLE:
            text = f"Working on: {doing}"
        elif before != IDLE:
            text = f"idle, last task: {before}"
        else:
            text = self._shown.get(process, IDLE)
        self._told[process] = doing
        if self._shown.get(process) != text:
            self._shown[process] = text
            await self._replace(process, text)

    async def _replace(self, process: str, text: str) -> None:
        fields = (process, text, self._clock.now())
        work = partial(store.replace, space=SPACE, template=_of(process), fields=fields)
        await self._db.write(work, runtime=True)

    async def remove(self, process: str) -> None:
        self._told.pop(process, None)
        self._shown.pop(process, None)
        await self._db.write(partial(store.remove, space=SPACE, template=_of(process)), runtime=True)

    async def close(self) -> None:
        await self.remove(self._own)

    async def keep(self, alive: Callable[[], Awaitable[set[str]]]) -> None:
        """For ever: this process is there; who is neither `alive` nor was heard of lately is not."""
        while True:
            await self._replace(self._own, IDLE)
            await self.sweep(await alive())
            await asyncio.sleep(_EVERY_SECONDS)

    async def sweep(self, alive: set[str]) -> None:
        living = {one.id for one in await self.living(alive)}
        for one in await self.all():
            if one.id not in living:
                await self.remove(one.id)

    async def living(self, alive: set[str]) -> list[ProcessStatus]:
        """Of members that are `alive`, and of whoever else was heard of lately."""
        late = self._clock.now() - 3 * _EVERY_SECONDS
        return [one for one in await self.all() if one.id in alive or one.at >= late]

    async def all(self) -> list[ProcessStatus]:
        found = await store.matching(self._db.read, SPACE, Pattern(_ANY), _MOST, lock="")
        return sorted((ProcessStatus(*one.fields) for one in found), key=lambda one: one.id)  # type: ignore[arg-type]


def _of(process: str) -> tuple[str, Typed, Typed]:
    return (process, Typed("str"), Typed("float"))
