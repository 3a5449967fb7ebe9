"""Keeps what is held where it should be: watches members, plans, and moves sources in small batches that grow.

A source whose holder is there is copied first, by a task `replicate` on the new holder; only when that has a copy does
it become the holder, and only then is the old one told to let go. What nobody holds, or only one that is gone, is given
away at once.
"""

import logging
from collections.abc import Sequence
from itertools import islice

from skep.clock import Clock
from skep.engines.db.base import Database
from skep.fleet.moves import Moves
from skep.fleet.plan import Change, Member
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
_RETRIES, _BACKOFF, _TIMEOUT = 3, 5.0, 21_600.0


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
        self._planned = 0.0
        #: the context of the batch that is under way
        self._under_way = ""
        self._targets: frozenset[str] = frozenset()

    async def follow(self) -> None:
        async with self._db.listen(FLEET) as bell:
            rang = True
            while True:
                if 0 in self._owners.owned:  # one coordinator does it
                    await self._fleet.patrol()
                    await self.step(rang)
                if self._under_way:
                    await self._contexts.wait(SYSTEM, self._under_way, self._beat_every)
                rang = await bell.wait(0.0 if self._under_way else self._beat_every)

    async def step(self, changed: bool) -> None:
        if self._under_way and not await self._has_ended(changed):
            return
        now = self._clock.now()
        if not changed and now < self._planned + _PLAN_SECONDS:
            return
        self._planned = now
        members, changes = await self._moves.plan()
        there = {member.id for member in members if member.state != "gone"}
        # what is being cloned stays until it can be copied; what never could be has nothing to copy
        unfetched = await self._moves.unfetched() if changes else {}
        lost = [change for change in changes if change.old not in there or unfetched.get(change.source)]
        for first in range(0, len(lost), _AT_ONCE):
            await self._moves.take_over(lost[first : first + _AT_ONCE])
        await self._copy(members, [one for one in changes if one.old in there and one.source not in unfetched])

    async def _copy(self, members: Sequence[Member], changes: Sequence[Change]) -> None:
        """From who is alive; one that is in its grace may be back before a copy is made."""
        alive = {member.id for member in members if member.state == "alive"}
        batch = list(islice((change for change in changes if change.old in alive), self._batch))
        if not batch:
            return
        tasks = tuple(
            TaskSpec(
                change.source,
                "replicate",
                arguments={"source": change.source},
                selector=f'id == "{change.new}"',
                retries=_RETRIES,
                backoff=_BACKOFF,
                timeout=_TIMEOUT,
            )
            for change in batch
        )
        context = await self._contexts.submit(SYSTEM, ContextSpec(f"move {len(batch)} sources", tasks), cause=CAUSE)
        self._under_way, self._targets = context.id, frozenset(change.new for change in batch)
        log.info("moving %d of %d sources", len(batch), len(changes))

    async def _has_ended(self, changed: bool) -> bool:
        """A batch that succeeded makes the next one larger; one whose target is gone is given up."""
        context = await self._contexts.wait(SYSTEM, self._under_way, 0.0)
        if context.state == "RUNNING":
            if changed:
                alive = {member.id for member in await self._fleet.members() if member.state in ("alive", "grace")}
                if not self._targets <= alive:
                    await self._contexts.cancel(SYSTEM, self._under_way)
            return False
        self._batch = min(_LARGEST, 2 * self._batch) if context.state == "FINISHED" else _SMALLEST
        self._under_way, self._planned = "", 0.0
        return True
