"""A Run is one attempt at a task on a worker: what is asked for, how it ended, and the machine it ran on."""

from typing import Literal

import msgspec

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


class Ended(msgspec.Struct, frozen=True):
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
