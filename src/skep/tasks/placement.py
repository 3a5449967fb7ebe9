"""Who gets which task. Pure: classes of waiting tasks and workers in, a number of tasks for each worker out.

Locality first (who holds the source), then the emptier worker, then chance. The cost follows classes and workers, not
tasks: a hundred thousand waiting tasks that are alike are one class.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from skep.tasks.model import PACKAGE, Exclusive
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
    #: the context that has it for itself, or waits for it to be empty; "": one task
    alone: str | None = None
    #: ids of sources it holds, of those that are asked for
    holds: frozenset[str] = frozenset()

    def room(self, one: Class) -> int:
        """How many tasks of the class fit now."""
        slot = slot_of(one.kind)
        free = max(0, self.slots.get(slot, 0) - self.used.get(slot, 0))
        if slot != "command" or not free:
            return free
        if self.alone is not None and (not self.alone or self.alone != one.context):
            return 0
        if one.exclusive == "worker":
            return int(not self.contexts)
        return 0 if one.exclusive == "context" and self.contexts.keys() - {one.context} else free

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


#: generators wait for what they submitted, copies for the tunnel that brings them
_WAITING = ("benchmark", "replicate")
#: nobody waits for these, and they may take long: who waits for an index must not wait for them
_BACKGROUND = ("analyse", "report", "fsck")


def does(worker: Worker, kind: str) -> bool:
    """`command` in its kinds stands for every program, `command:package` for every package."""
    if kind in worker.kinds or (kind.startswith(PACKAGE) and PACKAGE in worker.kinds):
        return True
    return "command" in worker.kinds and slot_of(kind) == "command"


def slot_of(kind: str) -> str:
    """Commands of users and Skep's own work do not take each other's places; what mostly waits takes none of theirs."""
    if kind.startswith("command"):
        return "command"
    return "waiting" if kind in _WAITING else "background" if kind in _BACKGROUND else "own"


def able(one: Class, workers: Sequence[Worker]) -> list[Worker]:
    """Those that may do it, whether or not there is room now."""
    matches = parse(one.selector).matches
    return [
        worker
        for worker in workers
        if does(worker, one.kind) and (not one.holder or one.source in worker.holds) and matches(worker.facts)
    ]


def share(one: Class, count: int, workers: Sequence[Worker], random: Callable[[], float]) -> dict[str, int]:
    """Worker -> how many of `count` waiting tasks it gets; the workers are counted up."""
    fits = able(one, workers)
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


def keep_for(one: Class, workers: Sequence[Worker]) -> None:
    """It wants a worker for itself, and all are busy: the least busy takes nothing new, or it would never be empty."""
    fits = [worker for worker in able(one, workers) if worker.alone is None and worker.slots.get("command")]
    if one.exclusive != "none" and slot_of(one.kind) == "command" and fits:
        min(fits, key=lambda worker: sum(worker.contexts.values())).alone = one.context


#: ways to give whole workers away that are tried before tasks to be placed together are told to wait
_WAYS = 1000
Wanted = Sequence[tuple[Class, int]]


def all_or_none(wanted: Wanted, workers: Sequence[Worker]) -> dict[int, dict[str, int]] | None:
    """Class -> worker -> tasks, for tasks that are placed together; None when they do not all fit.

    Tasks that want a worker for themselves choose among the empty ones; the others are matched to what is left.
    """
    units = [(one, able(one, workers)) for one, count in wanted for _ in range(count)]
    single = [unit for unit in units if _whole(unit[0])]
    shared = [unit for unit in units if not _whole(unit[0])]
    for whole in islice(_choices(single), _WAYS):
        seated = _matched(shared, {worker.id for worker in whole})
        if seated is None:
            continue
        plan: dict[int, dict[str, int]] = {one.id: {} for one, _ in wanted}
        for one, worker in (*zip((one for one, _ in single), whole, strict=True), *seated):
            plan[one.id][worker.id] = plan[one.id].get(worker.id, 0) + 1
            worker.give(one)
        return plan
    return None


def keep_together(context: str, wanted: Wanted, workers: Sequence[Worker]) -> None:
    """They do not fit now. Where they would fit once others have left, those workers take nothing new."""
    empty = [Worker(one.id, one.facts, one.kinds, one.slots, holds=one.holds) for one in workers if one.alone is None]
    plan = all_or_none(wanted, empty) or {}
    chosen = {id for places in plan.values() for id in places}
    for worker in workers:
        if worker.id in chosen:
            worker.alone = context


_Unit = tuple[Class, list[Worker]]


def _whole(one: Class) -> bool:
    return one.exclusive == "worker" and slot_of(one.kind) == "command"


def _choices(single: Sequence[_Unit], taken: tuple[Worker, ...] = ()) -> Iterator[tuple[Worker, ...]]:
    """Every way to give each of these an empty worker of its own, small workers first."""
    if len(taken) == len(single):
        yield taken
        return
    one, fits = single[len(taken)]
    for worker in sorted(fits, key=lambda worker: worker.slots.get("command", 0)):
        if worker.room(one) and all(worker is not other for other in taken):
            yield from _choices(single, (*taken, worker))


def _matched(units: Sequence[_Unit], without: Collection[str]) -> list[tuple[Class, Worker]] | None:
    """A place for each: where there is none, one that sits there already may move over (augmenting paths)."""
    seats: dict[tuple[str, str], list[int]] = {}

    def seat(unit: int, tried: set[tuple[str, str]]) -> bool:
        one, fits = units[unit]
        slot = slot_of(one.kind)
        for worker in fits:
            place, room = (worker.id, slot), worker.room(one)
            if place in tried or not room or (slot == "command" and worker.id in without):
                continue
            tried.add(place)
            sitting = seats.setdefault(place, [])
            if len(sitting) < room:
                sitting.append(unit)
                return True
            for at, other in enumerate(sitting):
                if seat(other, tried):
                    sitting[at] = unit
                    return True
        return False

    if not all(seat(unit, set()) for unit in range(len(units))):
        return None
    by_id = {worker.id: worker for _, fits in units for worker in fits}
    return [(units[unit][0], by_id[id]) for (id, _), sitting in seats.items() for unit in sitting]
