"""What a command task runs: its own program; or one of ours that measures with it, or runs a benchmark's own code."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skep.config import Settings
from skep.model.run import Command
from skep.model.task import Run, TaskSpec
from skep.runtime.commands import allowed
from skep.worker.doer import TaskFailed


def meant(command: Command, run: Run, code: str, *, settings: Settings, mirror: Callable[[str], Path]) -> Command:
    """What our own programs run has to be allowed as if it were run directly."""
    job = run.spec.arguments.get("measure")
    if code:
        _check(("python3",), settings)
        argv, given = (sys.executable, "-c", "from skep.benchmark import main; main()"), {"SKEP_CODE": code}
    elif job is not None:
        _check(job.get("build", ()), settings)
        packed = msgspec.json.encode({**job, "command": command.argv}).decode()
        argv = (sys.executable, "-m", "skep.benchmarks.measure")
        given = {"SKEP_MEASURE": packed, "SKEP_MIRROR": str(mirror(run.spec.source))}
    else:
        return command
    return msgspec.structs.replace(command, argv=argv, environment={**command.environment, **given})


def _check(argv: Sequence[str], settings: Settings) -> None:
    if argv and (reason := allowed(TaskSpec(argv=tuple(argv)), settings)):
        raise TaskFailed(reason)
