"""Results: what a task measured (Draft), how it is stored (Result), and the curve it belongs to (Series)."""

from typing import Any, Literal

import msgspec

#: of an aggregate
Measure = Literal["count", "min", "max", "mean", "median", "p95"]
MEASURES: tuple[Measure, ...] = ("count", "min", "max", "mean", "median", "p95")
#: kinds that every Skep knows; the setting `result_kinds` names more
KINDS = ("measure", "failure")
#: property of a task: the class of the machine it runs on
MACHINE = "skep.machine"


class Draft(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One measurement, as a task records it."""

    #: of a failure it may be empty
    metric: str = ""
    #: None: the median of `values`
    value: float | None = None
    unit: str = ""
    #: repetitions
    values: tuple[float, ...] = ()
    #: what was measured, such as a test within a suite
    group: str = ""
    kind: str = "measure"
    tags: dict[str, str] = {}


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """The key of a curve. Its unit is that of its first result; None: it has only failures yet."""

    benchmark: str = ""
    source: str = ""
    ref: str = ""
    group: str = ""
    metric: str = ""
    machine: str = ""
    unit: str | None = None


class Result(msgspec.Struct, frozen=True):
    id: str
    kind: str
    metric: str
    value: float
    unit: str
    values: tuple[float, ...]
    group: str
    tags: dict[str, str]
    task: str
    #: which attempt at the task, and which of its results
    attempt: int
    number: int
    context: str
    benchmark: str
    #: id or name of the source it is about
    source: str
    ref: str
    commit: str
    #: the commit's time; when it was recorded, if that is not known
    made_at: float
    #: class of the machine that measured
    machine: str
    at: float


class ResultQuery(msgspec.Struct, frozen=True):
    """Filters are texts: `metric=time`, `group!=slow`, `group~parse*`, `value>=1.5`, `ref=a|b`, `tags.size=10`."""

    where: tuple[str, ...] = ()
    #: only these; empty: all
    fields: tuple[str, ...] = ()
    #: a field; with `-` before it the largest first
    order: str = "-at"
    page: str = ""
    limit: int = 100


class Aggregate(msgspec.Struct, frozen=True):
    """Results with the same `by`, metric and unit, as a few numbers."""

    by: dict[str, Any]
    metric: str
    unit: str
    count: int
    min: float
    max: float
    mean: float
    median: float
    p95: float


class NewResults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results of a task, recorded by its id."""

    task: str
    results: list[Draft]
    #: None: its newest
    attempt: int | None = None
    #: number of the first of them, so that a repeat is recognised; None: after those it has
    first: int | None = None


class Recorded(msgspec.Struct, frozen=True):
    #: those that were not known before
    recorded: int


class Record(msgspec.Struct, frozen=True, tag=True):
    """Asked over the link by a worker: results of a task it runs. A repeat changes nothing."""

    task: str
    attempt: int
    first: int
    results: tuple[Draft, ...]
    machine: str
