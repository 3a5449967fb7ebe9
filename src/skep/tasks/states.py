"""Which moves a task may make, and who makes them. Pure; the one table that everything else asks.

CREATED > SUBMITTED                                    client
SUBMITTED > WAITING | SCHEDULED, WAITING > SCHEDULED   dispatcher
SCHEDULED > ACCEPTED | SUBMITTED (declined)            worker
ACCEPTED > RUNNING > FINISHED | FAILED                 worker
SCHEDULED | ACCEPTED | RUNNING > WAITING               dispatcher: lost, or failed with a retry left
WAITING > FAILED                                       dispatcher: it can never run, or its time is over
FAILED | ABORTED > SUBMITTED                           person: retry
any that has not ended > ABORTED                       person
"""

from skep.model.task import Actor, ContextState, TaskState

ENDED: frozenset[TaskState] = frozenset({"FINISHED", "FAILED", "ABORTED"})
#: with a worker
ACTIVE: frozenset[TaskState] = frozenset({"SCHEDULED", "ACCEPTED", "RUNNING"})

_MOVES: dict[tuple[TaskState, TaskState], frozenset[Actor]] = {
    ("CREATED", "SUBMITTED"): frozenset({"client"}),
    ("SUBMITTED", "WAITING"): frozenset({"dispatcher"}),
    ("SUBMITTED", "SCHEDULED"): frozenset({"dispatcher"}),
    ("WAITING", "SCHEDULED"): frozenset({"dispatcher"}),
    ("WAITING", "FAILED"): frozenset({"dispatcher"}),
    ("SCHEDULED", "ACCEPTED"): frozenset({"worker"}),
    ("SCHEDULED", "SUBMITTED"): frozenset({"worker"}),
    ("SCHEDULED", "WAITING"): frozenset({"dispatcher"}),
    ("SCHEDULED", "FAILED"): frozenset({"dispatcher"}),
    ("ACCEPTED", "RUNNING"): frozenset({"worker"}),
    ("ACCEPTED", "WAITING"): frozenset({"dispatcher"}),
    ("ACCEPTED", "FAILED"): frozenset({"worker", "dispatcher"}),
    ("RUNNING", "FINISHED"): frozenset({"worker"}),
    ("RUNNING", "FAILED"): frozenset({"worker", "dispatcher"}),
    ("RUNNING", "WAITING"): frozenset({"dispatcher"}),
    ("FAILED", "SUBMITTED"): frozenset({"person"}),
    ("ABORTED", "SUBMITTED"): frozenset({"person"}),
    **{
        (state, "ABORTED"): frozenset({"person", "dispatcher"})
        for state in ("CREATED", "SUBMITTED", "WAITING", "SCHEDULED", "ACCEPTED", "RUNNING")
    },
}


def legal(old: TaskState, new: TaskState, by: Actor) -> bool:
    return by in _MOVES.get((old, new), ())


def state_of_counts(left: int, failed: int) -> ContextState:
    if left:
        return "RUNNING"
    return "FAILED" if failed else "FINISHED"


def retry_pause(backoff: float, failures: int, random: float) -> float:
    """Seconds before the next try after `failures` of them: doubled each time, at most an hour, spread by a fifth."""
    return min(3600.0, backoff * 2.0 ** max(0, min(failures, 40) - 1)) * (0.9 + 0.2 * random)
