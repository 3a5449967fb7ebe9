"""One decision for all sources of a worker: the rule's waits, bent so that they use the poll budget, within bounds."""

import math
from collections.abc import Iterable

import msgspec

from skep.config import PollRule, Settings
from skep.model.source import SourceSettings
from skep.schedule.cadence import Bounds, interval
from skep.schedule.rule import wait, wait_failing

#: what was not used of the budget for so long may be used at once
BURST_SECONDS = 600.0
#: the population is weighed again after so long, or when it has grown or shrunk by this share
_WEIGH_SECONDS, _WEIGH_SHARE = 3600.0, 0.1
#: waits are counted in cells this wide (natural logarithm)
CELL = 0.2
_FASTEST = 2.0**40


class Cell(msgspec.Struct, array_like=True):
    """Sources with the same bounds and about the same wait."""

    count: int = 0
    #: sum of 1 / wait
    looks: float = 0.0


Counted = tuple[Bounds, int, Cell]


class Policy:
    def __init__(
        self,
        rule: PollRule = "share",
        bounds: Bounds = Bounds(60.0, 604_800.0),  # noqa: B008  # frozen
        budget: float = 0.0,
    ) -> None:
        self.rule: PollRule = rule
        self.bounds = bounds
        self.budget = budget
        self._cells: dict[tuple[Bounds, int], Cell] = {}
        self._size = self._weighed = 0
        self._weighed_at = -math.inf
        self.pace = 1.0

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        return cls(settings.poll_rule, Bounds(settings.poll_min, settings.poll_max), settings.poll_budget)

    def bounds_of(self, own: SourceSettings) -> Bounds:
        """What the source, or its label, says, else what holds for all; the longer of two that exclude each other."""
        shortest = own.poll_min or min(self.bounds.shortest, own.poll_max or math.inf)
        return Bounds(shortest, max(shortest, own.poll_max or self.bounds.longest))

    def wait(self, age: float, changes: float, observed: float) -> float:
        return max(1.0, wait(self.rule, age, changes, observed))

    def after_success(self, bounds: Bounds, wait: float, now: float, chance: float) -> float:
        if self.budget and self._stale(now):
            self._weighed_at, self._weighed = now, self._size
            self.weigh()
        return interval(wait / self.pace, bounds, chance)

    def after_failure(self, bounds: Bounds, failures: int, pause: float, chance: float) -> float:
        """`pause` is what the class of the failure wants."""
        if self.rule != "cube_root":
            return pause
        return max(pause, interval(wait_failing(failures) / self.pace, bounds, chance))

    # the population

    def count(self, bounds: Bounds, wait: float, by: int) -> None:
        """A source with this wait comes (1) or goes (-1)."""
        if not self.budget or not wait:
            return
        key = bounds, math.floor(math.log(wait) / CELL)
        cell = self._cells.setdefault(key, Cell())
        self._size += by
        cell.count += by
        cell.looks += by / wait
        if cell.count <= 0:
            del self._cells[key]

    def cells(self) -> list[Counted]:
        """What `count` has counted, to be remembered over a restart."""
        return [(bounds, number, cell) for (bounds, number), cell in self._cells.items()]

    def restore(self, cells: Iterable[Counted]) -> None:
        for bounds, number, cell in cells:
            self._cells[bounds, number] = cell
            self._size += cell.count

    def _stale(self, now: float) -> bool:
        moved = abs(self._size - self._weighed) > _WEIGH_SHARE * self._weighed
        return moved or not self._weighed_at <= now < self._weighed_at + _WEIGH_SECONDS

    def weigh(self) -> None:
        """Find the pace at which all of them together use the budget; more looks than bounds allow cannot be used."""
        if not self._cells:
            return
        low, high = 1 / _FASTEST, _FASTEST
        while high / low > 1.001:
            self.pace = math.sqrt(low * high)
            low, high = (self.pace, high) if self.load() < self.budget else (low, self.pace)

    def load(self) -> float:
        """Looks per second at this pace."""
        return sum(
            cell.count / interval(cell.count / cell.looks / self.pace, bounds, 0.5)
            for (bounds, _), cell in self._cells.items()
        )
