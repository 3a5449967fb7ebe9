"""Every kind of task: the arguments that it takes, and who may submit it. The one table; nothing else lists kinds.

Both sides decode by it: the coordinator at submission, and the worker when a run arrives. What a task says is joined to
a path only after it has passed the pattern of its id.
"""

import re
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from skep.base.errors import BadInput
from skep.benchmarks.api import Measure
from skep.tasks.model import TaskSpec

#: `\Z`, because `$` also matches before a line feed at the end
PlanId = Annotated[str, msgspec.Meta(pattern=r"\Adlt_[0-9A-HJKMNP-TV-Z]{26}\Z")]
SourceId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,100}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Word = Annotated[str, msgspec.Meta(max_length=1000)]
_SOURCE = re.compile(r"[A-Za-z0-9_-]{1,100}")


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class NoArguments(_Arguments, frozen=True):
    pass


class CommandArguments(_Arguments, frozen=True):
    #: the command is measured at a commit of its source: see benchmarks/measure.py
    measure: Measure | None = None


class EvaluateArguments(_Arguments, frozen=True):
    benchmark: Word = ""
    plot: Literal["series", "compare", "distribution", "table"] = "series"
    metric: Word | None = None
    group: Word | None = None
    ref: Word | None = None
    machine: Word | None = None
    commit: Word = ""


class IndexArguments(_Arguments, frozen=True):
    way: Word = ""


class PlanArguments(_Arguments, frozen=True):
    plan: PlanId


class BatchArguments(PlanArguments, frozen=True):
    batch: Count


class ReportArguments(PlanArguments, frozen=True):
    epoch: Count


class PublishArguments(ReportArguments, frozen=True):
    fetched_at: float


class ReplicateArguments(_Arguments, frozen=True):
    source: SourceId


class TaskKind(NamedTuple):
    arguments: type[_Arguments]
    #: callers of the API may submit it, and so may rules, packages, benchmarks and running tasks; else only the server
    for_callers: bool = False


KINDS: dict[str, TaskKind] = {
    "command": TaskKind(CommandArguments, for_callers=True),
    "noop": TaskKind(NoArguments, for_callers=True),
    "fsck": TaskKind(NoArguments, for_callers=True),
    "evaluate": TaskKind(EvaluateArguments, for_callers=True),
    "index": TaskKind(IndexArguments),
    "index.batch": TaskKind(BatchArguments),
    "index.publish": TaskKind(PublishArguments),
    "analyse": TaskKind(BatchArguments),
    "report": TaskKind(ReportArguments),
    "replicate": TaskKind(ReplicateArguments),
    "benchmark": TaskKind(NoArguments),
}
CALLER_KINDS = tuple(sorted(name for name, kind in KINDS.items() if kind.for_callers))
A = TypeVar("A", bound=_Arguments)


def check_kind(task: TaskSpec, *, internal: bool) -> None:
    """BadInput unless this task may be submitted. `internal`: by the server itself, for work of its own."""
    kind = KINDS.get(task.kind)
    if kind is None or not (internal or kind.for_callers):
        what = "is for the server itself" if kind else "is not known"
        raise BadInput(
            f"task {task.name!r}: the kind {task.kind[:80]!r} {what}",
            hint=f"kinds that can be submitted: {', '.join(CALLER_KINDS)}",
        )
    check_arguments(task)


def check_arguments(task: TaskSpec) -> None:
    """BadInput unless the arguments are those of its kind, and its source is an id."""
    decoded(task, _Arguments)
    if task.source:
        checked_source(task.source)


def decoded(task: TaskSpec, expected: type[A]) -> A:
    """The arguments of a task, typed. BadInput: they are not those of its kind."""
    kind = KINDS.get(task.kind)
    if kind is None or not issubclass(kind.arguments, expected):
        raise BadInput(f"task {task.name!r}: the kind {task.kind[:80]!r} is not known here")
    try:
        # through JSON: the arguments may hold structs, and only what JSON says reaches a worker
        found: Any = msgspec.convert(msgspec.to_builtins(task.arguments), kind.arguments)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"task {task.name!r}: the arguments are not those of the kind {task.kind!r}: {error}",
            hint=f"it takes: {', '.join(kind.arguments.__struct_fields__) or 'none'}",
        ) from None
    return found  # type: ignore[no-any-return]


def checked_source(source: str) -> str:
    """The id of a source, fit to be part of a path."""
    if not _SOURCE.fullmatch(source):
        raise BadInput(f"{source[:80]!r} is not the id of a source", hint="1 to 100 letters, digits, '_' and '-'")
    return source
