"""A Benchmark measures commits of a source: what is asked for (BenchmarkSpec), where it stands, what Steps it found."""

import zlib
from typing import Any, Literal

import msgspec

from skep.tasks.model import ContextSpec, Exclusive, Limits

#: waiting: nothing generates for it now; it was paused. failed: it was given up, and `reason` says why
BenchmarkState = Literal["running", "paused", "finished", "failed"]
#: push: the newest commit of each ref, whenever there is a new one. range: some or all commits of a range
Mode = Literal["push", "range"]
#: open: commits inside it were never measured, and are now
StepState = Literal["open", "told"]


class BenchmarkSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    #: id, name or URL
    source: str
    #: what is measured: a program and its arguments, run in a checkout of each commit
    command: tuple[str, ...] = ()
    #: GROUP/NAME/VERSION of a package that has the command, which of its commands, `command` being more arguments then
    package: str = ""
    program: str = ""
    #: run once in each checkout before
    build: tuple[str, ...] = ()
    #: branches; empty: the default branch
    refs: tuple[str, ...] = ()
    mode: Mode = "push"
    #: `OLD..NEW`; of mode range
    range: str = ""
    #: at most so many of a range, evenly spread; 0: all of them
    points: int = 0
    #: a file that the command writes, in a format that docs/results.md names; empty: its time on the wall is measured
    read: str = ""
    #: patterns of metrics that are kept; empty: all
    metrics: tuple[str, ...] = ()
    #: variables and their values: each combination is measured
    matrix: dict[str, tuple[str, ...]] = {}
    environment: dict[str, str] = {}
    repetitions: int = 5
    #: runs before those that count
    warmup: int = 1
    #: keep the runs on one processor
    pin: bool = False
    selector: str = ""
    exclusive: Exclusive = "worker"
    limits: Limits = Limits()
    #: its commands reach the network, where the worker's settings allow that
    network: bool = False
    #: seconds for one commit
    timeout: float = 3600.0
    #: contexts in flight, and made in an hour
    parallel: int = 1
    per_hour: int = 1000
    #: smaller changes are no step: 0.01 is 1 %
    least: float = 0.01
    #: measure what lies between two measured commits when a step does
    bisect: bool = True
    #: told of each step by POST
    webhook: str = ""
    #: instead of all above but name, source and limits: a Python file with a subclass of skep.benchmark.Benchmark
    code: str = ""
    #: begin a failed generator again
    resubmit: bool = True


class Benchmark(msgspec.Struct, frozen=True):
    id: str
    spec: BenchmarkSpec
    #: id of its source
    source: str
    state: BenchmarkState
    reason: str
    #: file: from `skep.toml`, and changed only there
    origin: Literal["api", "file"]
    created_at: float
    #: context of the task that generates its contexts
    generator: str
    #: contexts it generated, and those of them that failed
    contexts: int
    failed: int
    #: how often in a row its generator was begun again
    resubmits: int


class Commit(msgspec.Struct, frozen=True):
    id: str
    #: the first; empty: it has none
    parent: str
    #: when it was committed; in one history never before what it follows
    made_at: float
    author: str
    subject: str


class Want(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Somebody asks for commits to be measured."""

    #: a commit, branch or tag; `OLD..NEW` for a range
    revs: str
    #: only as many of a range as it takes to find its step: its ends, then halves
    bisect: bool = False
    #: measure again what was measured already
    again: bool = False
    #: its commits are measured once in each; those of wishes for `again` are the seconds at which they were made
    round: int = 1


class Step(msgspec.Struct, frozen=True):
    """A commit that moved a series, and how sure that is."""

    id: str
    benchmark: str
    source: str
    ref: str
    group: str
    metric: str
    machine: str
    unit: str
    commit: str
    #: the measured commit before it
    previous: str
    #: of the commit
    made_at: float
    author: str
    subject: str
    before: float
    after: float
    #: 0.05: 5 % more
    change: float
    p: float
    state: StepState
    found_at: float
    #: a person said that there is one between two commits
    asked: bool = False


class Evaluation(msgspec.Struct, frozen=True):
    """A file that a task made of results."""

    id: str
    task: str
    benchmark: str
    source: str
    name: str
    mime: str
    size: int
    at: float


class Span(msgspec.Struct, frozen=True):
    """Where an open step may be: after `previous`, up to `commit`."""

    step: str
    ref: str
    previous: str
    commit: str


class Turn(msgspec.Struct, frozen=True):
    """What a generator is told before it generates the next context."""

    benchmark: str
    spec: BenchmarkSpec
    source: str
    #: its own keys and values, as it saved them with its last context
    state: dict[str, Any]
    #: may submit a context now
    free: bool
    #: key -> state of each context it has generated
    generated: dict[str, str]
    resubmits: int
    #: ref -> commit, as the coordinator knows them
    tips: dict[str, str]
    default_branch: str
    spans: tuple[Span, ...] = ()
    wants: tuple[Want, ...] = ()
    #: two turns with the same one are the same
    stamp: str = ""

    def stamped(self) -> "Turn":
        return msgspec.structs.replace(self, stamp=f"{zlib.crc32(msgspec.json.encode(self)):08x}")


class Generated(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A context that a generator wants, and what it wants to find when it is called again."""

    #: names what is measured, within the benchmark: it is done once
    key: str
    spec: ContextSpec
    state: dict[str, Any] = {}


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task that measures does: see benchmarks/measure.py."""

    commit: str
    #: measured beside it, turn by turn; empty: nothing
    base: str
    command: tuple[str, ...]
    build: tuple[str, ...]
    read: str
    metrics: tuple[str, ...]
    repetitions: int
    warmup: int
    pin: bool
    #: of the matrix; part of the name of each group
    variant: str
    author: str
    subject: str
