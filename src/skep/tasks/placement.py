"""Who gets which task. Pure: classes of waiting tasks and workers in, a number of tasks for each worker out.

Locality first (who holds the source), then the emptier worker, then chance. The cost follows classes and workers, not
tasks: a hundred thousand waiting tasks that are alike are one class.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.model.task import Exclusive
from skep.tasks.selector import Facts, parse


class Class(msgspec.Struct, frozen=True):
    """Waiting tasks that are alike to a placement."""

    id: int
    kind: str
    selector: str
    source: str
    holder: bool
    exclusive: Exclusive
    #: of tasks that keep to their context; else empty
    context: str
    together: bool
    priority: int


class Worker(msgspec.Struct):
    """A worker and what it does; counted up while tasks are given to it."""

    id: str
    facts: Facts
    #: kinds of tasks it does
    kinds: frozenset[str]
    #: `command` and `own`: how many at once
    slots: Mapping[str, int]
    used: dict[str, int] = {}
    #: contexts of the commands it runs -> how many
    contexts: dict[str, int] = {}
    #: the context that has it for itself; "": one task has
    alone: str | None = None
    #: ids of sources it holds, of those that are asked for
    holds: frozenset[str] = frozenset()

    def room(self, one: Class) -> int:
        """How many tasks of the class fit now."""
        slot = slot_of(one.kind)
        free = max(0, self.slots.get(slot, 0) - self.used.get(slot, 0))
        if slot == "own" or not free:
            return free
        others = sum(self.contexts.values()) - (self.contexts.get(one.context, 0) if one.context else 0)
        if one.exclusive == "worker":
            return int(not self.contexts)
        if self.alone is not None and (not self.alone or self.alone != one.context):
            return 0
        return 0 if one.exclusive == "context" and others else free

    def give(self, one: Class, context: str = "", count: int = 1) -> None:
        slot = slot_of(one.kind)
        self.used = {**self.used, slot: self.used.get(slot, 0) + count}
        if slot == "command":
            context = one.context or context
            self.contexts = {**self.contexts, context: self.contexts.get(context, 0) + count}
            if one.exclusive != "none":
                self.alone = one.context if one.exclusive == "context" else ""

    @property
    def fullness(self) -> float:
        return sum(self.used.values()) / max(1, sum(self.slots.values()))


def slot_of(kind: str) -> str:
    """Commands of users and Skep's own work do not take each other's places."""
    return "command" if kind == "command" else "own"


def able(one: Class, workers: Sequence[Worker]) -> list[Worker]:
    """Those that may do it, whether or not there is room now."""
    matches = parse(one.selector).matches
    return [
        worker
        for worker in workers
        if one.kind in worker.kinds and (not one.holder or one.source in worker.holds) and matches(worker.facts)
    ]


def share(one: Class, count: int, workers: Sequence[Worker], random: Callable[[], float]) -> dict[str, int]:
    """Worker -> how many of `count` waiting tasks it gets; the workers are counted up."""
    fits = able(one, workers)
    if len(fits) == 1:  # one laptop
        given = min(count, fits[0].room(one))
        if given:
            fits[0].give(one, count=given)
        return {fits[0].id: given} if given else {}
    heap = [(_rank(one, worker), random(), at) for at, worker in enumerate(fits) if worker.room(one)]
    heapq.heapify(heap)
    shares: dict[str, int] = {}
    while heap and count:
        _, chance, at = heapq.heappop(heap)
        worker = fits[at]
        worker.give(one)
        shares[worker.id] = shares.get(worker.id, 0) + 1
        count -= 1
        if worker.room(one):
            heapq.heappush(heap, (_rank(one, worker), chance, at))
    return shares


def _rank(one: Class, worker: Worker) -> tuple[bool, float]:
    return (bool(one.source) and one.source not in worker.holds, worker.fullness)


def all_or_none(wanted: Sequence[tuple[Class, int]], workers: Sequence[Worker]) -> dict[int, dict[str, int]] | None:
    """Class -> worker -> tasks, for tasks that are placed together; None when they do not all fit.

    Each task looks for a place, and where there is none for one that was placed before to move over (augmenting paths).
    Tasks that want a worker for themselves choose first, among the empty ones.
    """
    units = sorted(
        ((one, able(one, workers)) for one, count in wanted for _ in range(count)),
        key=lambda unit: (unit[0].exclusive != "worker", len(unit[1])),
    )
    room = {worker.id: max((worker.room(one) for one, _ in wanted), default=0) for worker in workers}
    seated: dict[str, list[int]] = {worker.id: [] for worker in workers}

    def seat(unit: int, tried: set[str]) -> bool:
        one, fits = units[unit]
        for worker in fits:
            if worker.id in tried or not worker.room(one):
                continue
            tried.add(worker.id)
            most = 1 if any(units[other][0].exclusive == "worker" for other in (*seated[worker.id], unit)) else None
            if len(seated[worker.id]) < (most or room[worker.id]):
                seated[worker.id].append(unit)
                return True
            for place, other in enumerate(seated[worker.id]):
                if most is None and seat(other, tried):
                    seated[worker.id][place] = unit
                    return True
        return False

    if not all(seat(unit, set()) for unit in range(len(units))):
        return None
    plan: dict[int, dict[str, int]] = {one.id: {} for one, _ in wanted}
    by_id = {worker.id: worker for worker in workers}
    for id, places in seated.items():
        for unit in places:
            one = units[unit][0]
            plan[one.id][id] = plan[one.id].get(id, 0) + 1
            by_id[id].give(one)
    return plan
