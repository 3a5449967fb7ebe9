"""What a command task runs: its own program; or one of ours that measures with it, or runs a benchmark's own code.

Our own programs start isolated from variables and folders (`python -I`) and with nothing of what the task sets: its
variables are data for them, which they hand to the programs that they start.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skep.config import Settings
from skep.model.run import Command
from skep.model.task import Run, TaskSpec
from skep.runtime.commands import allowed, refused_variables
from skep.worker.doer import TaskFailed

_OURS = (sys.executable, "-I", "-c")


def meant(command: Command, run: Run, code: str, *, settings: Settings, mirror: Callable[[str], Path]) -> Command:
    """What our own programs run has to be allowed as if it were run directly."""
    job = run.spec.arguments.get("measure")
    program = run.spec.package.rpartition("/")[0] or "".join(command.argv[:1])
    if code:
        _check(("python3",), settings)
        _check_variables(command, ("python3",), settings)
        main, given = "skep.benchmark", {"SKEP_CODE": code}
    elif job is not None:
        build = job.get("build", ())
        _check(build, settings)
        _check_variables(command, (program, *build[:1]), settings)
        packed = msgspec.json.encode({**job, "command": command.argv}).decode()
        main, given = "skep.benchmarks.measure", {"SKEP_MEASURE": packed, "SKEP_MIRROR": str(mirror(run.spec.source))}
        command = msgspec.structs.replace(command, readable=(given["SKEP_MIRROR"],))
    else:
        _check_variables(command, (program,), settings)
        return command
    given["SKEP_VARIABLES"] = msgspec.json.encode(command.environment).decode()
    argv = (*_OURS, f"import sys; from {main} import main; sys.exit(main())")
    return msgspec.structs.replace(command, argv=argv, environment=given)


def _check(argv: Sequence[str], settings: Settings) -> None:
    if argv and (reason := allowed(TaskSpec(argv=tuple(argv)), settings)):
        raise TaskFailed(reason)


def _check_variables(command: Command, programs: Sequence[str], settings: Settings) -> None:
    if reason := refused_variables(command.environment, programs, settings):
        raise TaskFailed(reason)
