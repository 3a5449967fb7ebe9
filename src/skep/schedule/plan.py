"""What is known of a source's looks, and when the next one is: the state that every decision is made from."""

from dataclasses import dataclass

from skep.model.source import Failure, FailureClass, SourceSettings
from skep.schedule.cadence import Bounds, pause
from skep.schedule.estimate import FIRST_OBSERVED, observe
from skep.schedule.policy import Policy

_NONE = Bounds(0.0, 0.0)
_USUAL = SourceSettings()


@dataclass(slots=True, eq=False, kw_only=True)
class Plan:
    #: when the upstream was last asked and the mirror then was, or became, the same
    last_looked: float = 0.0
    last_changed: float = 0.0
    next_look: float = 0.0
    failures: int = 0
    failure: FailureClass | None = None
    #: the estimate of its rate of change
    changes: float = 0.0
    observed: float = FIRST_OBSERVED
    #: what the policy has counted it with; no wait: not yet
    wait: float = 0.0
    bounds: Bounds = _NONE

    def succeeded(
        self, at: float, changed: float | None, policy: Policy, chance: float, own: SourceSettings = _USUAL
    ) -> None:
        """Upstream and mirror were the same at `at`; `changed` is when it changed, if it did since the last look."""
        if 0 < self.last_looked < at:
            self.changes, self.observed = observe(
                self.changes, self.observed, at - self.last_looked, changed is not None
            )
        self.last_looked = at
        if changed is not None or not self.last_changed:
            self.last_changed = at if changed is None else changed
        self.failures = 0
        self.failure = None
        policy.count(self.bounds, self.wait, -1)
        self.bounds = policy.bounds_of(own)
        self.wait = policy.wait(at - self.last_changed, self.changes, self.observed)
        policy.count(self.bounds, self.wait, 1)
        self.next_look = at + policy.after_success(self.bounds, self.wait, at, chance)

    def failed(self, now: float, failure: Failure, policy: Policy, chance: float) -> None:
        self.failures = self.failures + 1 if failure.kind == self.failure else 1
        self.failure = failure.kind
        rest = pause(failure, self.failures, chance)
        self.next_look = now + policy.after_failure(self.bounds, self.failures, rest, chance)
