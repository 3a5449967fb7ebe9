"""Keeps what is held where it should be: watches members, plans, and has copies made in small batches that grow.

A source whose holder is there is copied first; only when the new one has all of it does it become the holder. Where
the holder is gone, one that has a copy takes its place; what nobody else has is given away at once.
"""

import logging
from collections.abc import Iterator
from itertools import islice

from skep.clock import Clock
from skep.engines.db.base import Database
from skep.fleet.moves import PATIENCE, Moves
from skep.fleet.service import FLEET, Fleet
from skep.model.caller import SYSTEM
from skep.model.task import ContextSpec, TaskSpec
from skep.tasks.contexts import Contexts
from skep.tasks.owners import Owners

log = logging.getLogger(__name__)

CAUSE = "move"
_SMALLEST, _LARGEST = 8, 512
_AT_ONCE = 1_000
#: everything is looked at again so often, whether or not anything rang
_PLAN_SECONDS = 60.0
#: times what a plan took until the next: where a million sources make it long, somebody always comes or goes
_REST = 3.0
#: how soon it is seen that copies are complete
_SOON = 1.0


class Moving:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        fleet: Fleet,
        moves: Moves,
        contexts: Contexts,
        owners: Owners,
        beat_every: float,
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._moves = moves
        self._contexts = contexts
        self._owners = owners
        self._beat_every = beat_every
        self._batch = _SMALLEST
        self._planned = self._rested = 0.0
        #: something happened that the last plan does not know of
        self._changed = False
        #: copies of the last plan that were not begun yet
        self._waiting: Iterator[tuple[str, str]] = iter(())
        self._under_way = 0

    async def follow(self) -> None:
        async with self._db.listen(FLEET) as bell:
            rang = True
            while True:
                await self._fleet.listen()
                if 0 in self._owners.owned:  # one coordinator does it
                    await self._fleet.patrol()
                    await self.step(rang)
                rang = await bell.wait(self._pause())

    def _pause(self) -> float:
        """Until there may be something to do, whether or not anything rings."""
        pause = min(_SOON, self._beat_every) if self._under_way else self._beat_every
        return max(0.0, min(pause, self._rested - self._clock.now())) if self._changed else pause

    async def step(self, changed: bool) -> None:
        """A batch that is complete makes the next one larger; after the last one, who has a copy becomes the holder."""
        before, self._under_way = self._under_way, await self._moves.under_way()
        ended = before > 0 and not self._under_way
        if ended:
            self._batch = min(_LARGEST, 2 * self._batch)
            await self._copy()
        if changed:
            self._batch = _SMALLEST
        now = self._clock.now()
        self._changed |= changed or (ended and not self._under_way)
        if now >= self._rested and (self._changed or now >= self._planned + _PLAN_SECONDS):
            self._changed = False
            await self._plan()
            self._rested = self._clock.now() + _REST * (self._clock.now() - now)

    async def _plan(self) -> None:
        members, plan = await self._moves.plan()
        there = {member.id for member in members if member.state != "gone"}
        # what is being cloned stays until it can be copied; what never could be has nothing to copy
        unfetched = await self._moves.unfetched() if plan.changes or plan.copies else {}
        now = [one for one in plan.changes if one.ready or one.old not in there or unfetched.get(one.source)]
        for first in range(0, len(now), _AT_ONCE):
            await self._moves.take_over(now[first : first + _AT_ONCE])
        for first in range(0, len(plan.spare), _AT_ONCE):
            await self._moves.release(plan.spare[first : first + _AT_ONCE])
        self._planned = 0.0 if now else self._clock.now()  # another holder, another plan
        self._waiting = (one for one in plan.copies if one[0] not in unfetched)
        await self._copy()

    async def _copy(self) -> None:
        if batch := list(islice(self._waiting, max(0, self._batch - self._under_way))):
            await self._moves.copy(batch)
            self._under_way += len(batch)
            tasks = tuple(_task(*one) for one in batch)
            copies = ContextSpec(f"copy {len(batch)} sources", tasks)
            await self._contexts.submit(SYSTEM, copies, cause=CAUSE, internal=True)
            log.info("%d copies are being made", self._under_way)


def _task(source: str, member: str) -> TaskSpec:
    """The copy is ordered; the task is where people see it, and what became of it."""
    wanted, where = {"source": source}, f'id == "{member}"'
    return TaskSpec(f"{source}-{member}", "replicate", arguments=wanted, selector=where, timeout=PATIENCE)
