"""Tasks and contexts: what is asked for (…Spec), where it stands (Task, Context), and how it came there (Move)."""

from typing import Any, Literal

import msgspec

from skep.fleet.api import Offer

# A Run is one attempt at a task on a worker: what is asked for, how it ended, and the machine it ran on.

#: why a run ended other than by itself; empty: it ended by itself
EndReason = Literal[
    "",
    "time",
    "cpu",
    "memory",
    "output",
    "disk",
    "processes",
    "cancelled",
    "lost",
    "not_found",
    "not_executable",
    "not_started",
    "lease",
]


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """None: as the worker's settings say. All of them hold for the command and everything it starts, together."""

    #: on the wall
    seconds: float | None = None
    cpu: float | None = None
    memory: int | None = None
    #: bytes kept of each stream; the rest is dropped, and ten times of it end the run
    output: int = 10_000_000
    #: bytes in the folder of the run
    disk: int | None = None
    processes: int | None = None


class Command(msgspec.Struct, frozen=True):
    task: str
    attempt: int
    context: str
    argv: tuple[str, ...]
    environment: dict[str, str] = {}
    properties: dict[str, str] = {}
    limits: Limits = Limits()
    #: seconds between a friendly signal and the one that cannot be refused
    grace: float = 5.0
    #: it reaches the network of the machine; else only the API of tasks
    network: bool = False
    #: further paths that it may read, such as the mirror of its source
    readable: tuple[str, ...] = ()


class RunEnded(msgspec.Struct, frozen=True):
    #: None when a signal ended it, or when it never began
    code: int | None = None
    signal: int | None = None
    reason: EndReason = ""
    #: for people; empty after success
    message: str = ""
    seconds: float = 0.0
    #: of the command and of the children it waited for
    cpu_seconds: float = 0.0
    #: of its largest process; never below the few MB of the process that started it
    max_rss: int = 0
    #: bytes written, kept or not
    stdout: int = 0
    stderr: int = 0

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.reason


class Facts(msgspec.Struct, frozen=True):
    """What does not change while a worker runs: tasks select workers by it."""

    os: str
    kernel: str
    arch: str
    cpus: int
    memory: int
    disk_total: int
    disk_free: int
    python: str
    #: name -> path of those that were looked for and found
    tools: dict[str, str]
    #: limit -> how this machine holds tasks to it
    limits: dict[str, str]
    #: class of machines whose measurements may be compared
    machine: str


class Sample(msgspec.Struct, frozen=True):
    """The machine at one moment; rates are since the sample before."""

    at: float
    cpu_percent: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_free: int
    network_in: int
    network_out: int
    load: tuple[float, float, float]
    processes: int


TaskState = Literal[
    "CREATED", "SUBMITTED", "WAITING", "SCHEDULED", "ACCEPTED", "RUNNING", "FINISHED", "FAILED", "ABORTED"
]
ContextState = Literal["RUNNING", "FINISHED", "FAILED"]
Stream = Literal["stdout", "stderr"]
#: who makes a move
Actor = Literal["client", "dispatcher", "worker", "person"]
#: none: any number beside it; context: only tasks of its own context beside it; worker: nothing beside it
Exclusive = Literal["none", "context", "worker"]
#: finished: the other must have FINISHED; ended: FAILED and ABORTED will do as well
NeedRule = Literal["finished", "ended"]


#: what a worker does that may run every package
PACKAGE = "command:package"


class Need(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: name of another task of the same context
    task: str
    rule: NeedRule = "finished"


class TaskSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task as it is submitted. With `template` it begins as that template; fields given here win."""

    name: str = ""
    #: `command`, or a kind that is built in
    kind: str = "command"
    #: of a command: the program and its arguments; of a package's: more arguments
    argv: tuple[str, ...] = ()
    #: of a built-in kind
    arguments: dict[str, Any] = {}
    #: inherited from the context; the task's own win
    properties: dict[str, str] = {}
    environment: dict[str, str] = {}
    needs: tuple[Need, ...] = ()
    #: which workers may do it: an expression over their facts
    selector: str = ""
    #: id of the source it is about; who holds it comes first
    source: str = ""
    #: only the holder of `source` may do it
    holder: bool = False
    exclusive: Exclusive = "none"
    limits: Limits = Limits()
    #: a command reaches the network of its worker's machine, where the worker's settings allow that
    network: bool = False
    #: how often it is tried again after it failed
    retries: int = 0
    #: how often it is started again after its worker was lost; None: 5 times, or never if it may run at most once
    lost_worker_retries: int | None = None
    #: it is never started a second time, whatever happens to it or to its worker
    at_most_once: bool = False
    #: seconds before the first retry; doubled for each further one
    backoff: float = 1.0
    #: higher goes first
    priority: int = 0
    #: seconds from submission after which it is given up, wherever it stands
    timeout: float | None = None
    template: str = ""
    #: GROUP/NAME/VERSION of the package that has the command
    package: str = ""
    #: which of the package's; may be left out where there is one
    command: str = ""
    #: patterns of files it leaves with results, besides results.jsonl
    results: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The kind as a placement sees it: not every worker may run every program, or every package."""
        if self.kind != "command":
            return self.kind
        package, _, _ = self.package.rpartition("/")
        return f"{PACKAGE}:{package}" if package else f"command:{''.join(self.argv[:1])}"


class ContextSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    tasks: tuple[TaskSpec, ...] = ()
    description: str = ""
    properties: dict[str, str] = {}
    templates: dict[str, TaskSpec] = {}
    #: all its tasks are placed at once or none is, so that tasks that wait for each other never deadlock
    together: bool = False


class Move(msgspec.Struct, frozen=True):
    """One line of a task's reason log."""

    state: TaskState
    attempt: int
    by: Actor
    reason: str
    at: float


class Task(msgspec.Struct, frozen=True):
    id: str
    context: str
    name: str
    kind: str
    state: TaskState
    #: number of the newest placement; reports of older ones are refused
    attempt: int
    #: tries that failed
    failures: int
    #: tries that ended because their worker was lost, restarted, or could not renew its lease
    lost_workers: int
    #: member that has it; empty while none does
    worker: str
    #: why it is where it is
    reason: str
    created_at: float
    ended_at: float | None = None
    #: not placed again before
    not_before: float = 0.0
    #: of a command that has ended
    code: int | None = None


class TaskView(msgspec.Struct, frozen=True):
    """One task, whole."""

    task: Task
    spec: TaskSpec
    moves: list[Move]
    #: what it answered, if anything
    result: Any = None


class Context(msgspec.Struct, frozen=True):
    id: str
    name: str
    state: ContextState
    #: what it was made for: `person:NAME`, `change:BATCH`, `clock:TIME`, `request:…`
    cause: str
    created_at: float
    #: tasks, those not ended yet, and those that FAILED or were ABORTED
    tasks: int
    left: int
    failed: int
    ended_at: float | None = None
    description: str = ""
    properties: dict[str, str] = {}
    together: bool = False


class ContextView(msgspec.Struct, frozen=True):
    context: Context
    #: a bounded number of them, oldest first
    tasks: list[Task]
    #: name of a task -> names of those it needs, for those shown that need any
    needs: dict[str, list[str]] = {}


class Run(msgspec.Struct, frozen=True):
    """A placed task on its way to its worker."""

    task: str
    attempt: int
    context: str
    name: str
    spec: TaskSpec
    #: no retry is left after this
    last: bool = True


class Report(msgspec.Struct, frozen=True):
    """What a worker says of a task it was given. SUBMITTED: it declines it, or gives it up."""

    task: str
    attempt: int
    state: Literal["SUBMITTED", "ACCEPTED", "RUNNING", "FINISHED", "FAILED"]
    reason: str = ""
    at: float = 0.0
    code: int | None = None
    result: Any = None


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a task's output. `n` counts the pieces of one attempt, so that a repeat is recognised."""

    task: str
    context: str
    attempt: int
    n: int
    stream: Stream
    at: float
    body: bytes


#: a task and which attempt at it
TaskHold = tuple[str, int]


class Reported(msgspec.Struct, frozen=True, tag=True):
    """Asked over the link; a repeat changes nothing."""

    reports: tuple[Report, ...]


class Renew(msgspec.Struct, frozen=True, tag=True):
    """A worker wants to keep what it runs for another lease."""

    offer: Offer
    running: tuple[TaskHold, ...]


class Written(msgspec.Struct, frozen=True, tag=True):
    """Output of tasks."""

    chunks: tuple[Chunk, ...]


class Call(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A running task asks something of its context: see tasks/calls.py."""

    task: str
    attempt: int
    verb: str
    name: str = ""
    value: Any = None
    wait: float = 0.0


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A manager wants a context for an occasion; asked again, it is the same context."""

    spec: ContextSpec
    cause: str
    once: str


class Extend(msgspec.Struct, frozen=True, tag=True):
    """A manager wants more tasks in a context."""

    context: str
    tasks: tuple[TaskSpec, ...]


class Await(msgspec.Struct, frozen=True, tag=True):
    """A manager waits for a context to end."""

    context: str
    wait: float


TaskRequest = Reported | Renew | Written | Call | Submit | Extend | Await


class Renewed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What may be kept for `lease` seconds, counted from the moment of asking, and what must be stopped."""

    lease: float
    stop: tuple[TaskHold, ...] = ()
    #: tasks for the places that became free by what was reported
    begin: tuple[Run, ...] = ()


class Reply(msgspec.Struct, frozen=True, tag=True):
    value: Any = None


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A context and the results of its tasks by name; `state` RUNNING: not yet."""

    context: str
    state: ContextState
    results: dict[str, Any] = {}


TaskAnswer = Renewed | Reply | Ended
