"""Which moves a task may make, and who makes them. Pure; the one table that everything else asks.

CREATED > SUBMITTED                                    client
SUBMITTED > WAITING | SCHEDULED, WAITING > SCHEDULED   dispatcher
SCHEDULED > ACCEPTED | SUBMITTED (declined)            worker
ACCEPTED > RUNNING > FINISHED | FAILED                 worker
ACCEPTED > FAILED                                      worker
SCHEDULED > WAITING                                    dispatcher: its worker is lost, and had not accepted it
ACCEPTED | RUNNING > WAITING                           dispatcher: it failed and `retries` has one left; or its
                                                       worker is lost and `lost_worker_retries` has one left
ACCEPTED | RUNNING > FAILED                            dispatcher: its worker is lost, and no retry is left
WAITING | SCHEDULED | ACCEPTED | RUNNING > FAILED      dispatcher: it can never run, or its time is over
FAILED | ABORTED > SUBMITTED                           person: retry, except of what ran and may run at most once
any that has not ended > ABORTED                       person; dispatcher: what it needs has failed

Two budgets, counted apart. A try that fails counts in `failures`, against `retries`. A try that ends because its worker
died, restarted or could not renew its lease counts in `lost_workers`, against `lost_worker_retries`. A task that may
run at most once has neither: from ACCEPTED on it is never placed again. Its worker starts it only after ACCEPTED is
stored, so as long as it is SCHEDULED it has not started, and may be placed again.
"""

from skep.model.task import Actor, ContextState, TaskSpec, TaskState

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


#: where a submission says nothing else: a worker that dies is not the task's fault, unless it happens again and again
LOST_WORKER_RETRIES = 5


def lost_worker_retries(task: TaskSpec) -> int:
    """How often it is started again after its worker was lost."""
    if task.lost_worker_retries is not None:
        return task.lost_worker_retries
    return 0 if task.at_most_once else LOST_WORKER_RETRIES


def legal(old: TaskState, new: TaskState, by: Actor) -> bool:
    return by in _MOVES.get((old, new), ())


def state_of_counts(left: int, failed: int) -> ContextState:
    if left:
        return "RUNNING"
    return "FAILED" if failed else "FINISHED"


def retry_pause(backoff: float, failures: int, random: float) -> float:
    """Seconds before the next try after `failures` of them: doubled each time, at most an hour, spread by a fifth."""
    return min(3600.0, backoff * 2.0 ** max(0, min(failures, 40) - 1)) * (0.9 + 0.2 * random)
