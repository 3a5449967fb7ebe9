"""What a command task runs: its own program; or one of ours that measures with it, or runs a benchmark's own code."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skep.config import Settings
from skep.model.task import Run, TaskSpec
from skep.runtime.commands import allowed
from skep.worker.doer import TaskFailed

Meant = tuple[tuple[str, ...], dict[str, str]]


def meant(run: Run, code: str, *, settings: Settings, mirror: Callable[[str], Path]) -> Meant:
    """Program and environment. What our own programs run has to be allowed as if it were run directly."""
    spec = run.spec
    if code:
        _check(("python3",), settings)
        return (sys.executable, "-c", "from skep.benchmark import main; main()"), {"SKEP_CODE": code}
    job = spec.arguments.get("measure")
    if job is None:
        return spec.argv, spec.environment
    _check(job.get("build", ()), settings)
    packed = msgspec.json.encode({**job, "command": spec.argv}).decode()
    given = {"SKEP_MEASURE": packed, "SKEP_MIRROR": str(mirror(spec.source))}
    return (sys.executable, "-m", "skep.benchmarks.measure"), {**spec.environment, **given}


def _check(argv: Sequence[str], settings: Settings) -> None:
    if argv and (reason := allowed(TaskSpec(argv=tuple(argv)), settings)):
        raise TaskFailed(reason)
