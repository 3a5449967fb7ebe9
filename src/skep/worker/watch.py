"""A held source and when it is looked at: the poller's working memory, small because there may be very many."""

from dataclasses import dataclass

from skep.model.source import Failure, FailureClass, Held
from skep.schedule.cadence import Bounds, after_failure, after_success
from skep.schedule.hosts import host_of


@dataclass(slots=True, eq=False)
class Watch:
    #: without `told`, which stays in the file until a fetch needs it
    held: Held
    #: when the upstream was last asked and the mirror then was, or became, the same
    last_looked: float = 0.0
    last_changed: float = 0.0
    next_look: float = 0.0
    failures: int = 0
    failure: FailureClass | None = None
    #: fetch-nows that no outcome has answered yet
    asks: int = 0
    #: a fetch was begun and not told: the mirror may be ahead of `told`
    fetching: bool = False
    #: what an earlier process left behind was cleared away
    mended: bool = False
    host: str = ""

    def __post_init__(self) -> None:
        self.host = host_of(self.held.url)

    @property
    def source(self) -> str:
        return self.held.source

    def succeeded(self, at: float, changed: bool, bounds: Bounds, chance: float) -> None:
        """Upstream and mirror were the same at `at`."""
        self.last_looked = at
        if changed or not self.last_changed:
            self.last_changed = at
        self.failures = 0
        self.failure = None
        self.next_look = at + after_success(at - self.last_changed, bounds, chance)

    def failed(self, now: float, failure: Failure, chance: float) -> None:
        self.failures = self.failures + 1 if failure.kind == self.failure else 1
        self.failure = failure.kind
        self.next_look = now + after_failure(failure, self.failures, chance)
