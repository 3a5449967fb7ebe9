"""What a command may be, how the keeper is told of it, and how its end is told to people."""

import errno
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec

from skep.config import Settings
from skep.errors import BadInput, TooLarge
from skep.model.run import Command, Ended, EndReason, Sample
from skep.model.task import PACKAGE, TaskSpec

#: one message to the keeper; a socket takes no larger one at once
_LARGEST = 128 << 10
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)
_NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.EPERM)
_LIMIT_SIGNALS: dict[int, EndReason] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}


def offered(settings: Settings) -> list[str]:
    """The programs of tasks that this worker may run: `command` is any; of packages `command:package`."""
    programs = [f"command:{name}" if name != "*" else "command" for name in settings.task_commands]
    return programs + [f"{PACKAGE}:{name}" if name != "*" else PACKAGE for name in settings.task_packages]


def allowed(spec: TaskSpec, settings: Settings) -> str:
    """Empty, or why this worker does not run it. A command that runs others, such as sh, lets all of them in."""
    kind, _, name = spec.program.rpartition(":")
    if {"command", kind if spec.package else "", spec.program} & set(offered(settings)):
        return ""
    setting = "task_packages" if spec.package else "task_commands"
    return f"this worker may not run '{name}': its setting {setting} does not name it"


def full(settings: Settings, running: int, sample: Sample) -> str:
    """Empty, or why this worker takes no further task."""
    slots = settings.task_slots or max(2, os.cpu_count() or 1)
    if running >= slots:
        return f"runs {running} tasks, as many as it may"
    used = 100 * sample.memory_used / max(1, sample.memory_total)
    if used > settings.task_memory_threshold:
        return f"uses {used:.0f} % of its memory, more than {settings.task_memory_threshold:g} %"
    return ""


def check(command: Command) -> None:
    if not _NAME.fullmatch(command.task):
        raise BadInput(f"'{command.task}' is no name for a task", hint="letters, digits, '_', '.', '-', at most 100")
    if not command.argv or not command.argv[0]:
        raise BadInput(f"task {command.task} has no command")
    pairs = [*command.environment.items(), *command.properties.items()]
    for text in (*command.argv, command.context, *(part for pair in pairs for part in pair)):
        if "\0" in text or text != text.encode("utf-8", "ignore").decode():
            raise BadInput(f"{text!r} holds what neither an argument nor a variable can hold")
    for name in command.environment:
        if not name or "=" in name:
            raise BadInput(f"{name!r} is no name for a variable")
    for name, value in msgspec.structs.asdict(command.limits).items():
        if value is not None and not value > 0:
            raise BadInput(f"the limit {name} is {value}, and has to be above 0")


def found(name: str) -> str | None:
    """Names are looked up with the worker's PATH: one from a task could turn an allowed name into another command."""
    return name if "/" in name else shutil.which(name, path=_path())


def environment(command: Command, folder: Path) -> dict[str, str]:
    """Made from nothing: what the worker knows is no business of a task."""
    return {
        "PATH": _path(),
        "LANG": "C.UTF-8",
        "HOME": str(folder / "work"),
        "TMPDIR": str(folder / "tmp"),
        **command.environment,
        "SKEP_TASK": command.task,
        "SKEP_ATTEMPT": str(command.attempt),
        "SKEP_CONTEXT": command.context,
        "SKEP_PROPERTIES": msgspec.json.encode(command.properties).decode(),
    }


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def order(command: Command, name: str, path: str, folder: Path, variables: dict[str, str]) -> bytes:
    """What the keeper is told."""
    told = {
        "start": name,
        "path": path,
        "argv": command.argv,
        "environment": variables,
        "folder": str(folder / "work"),
        "limits": msgspec.structs.asdict(command.limits),
        "grace": command.grace,
    }
    if len(data := msgspec.json.encode(told)) > _LARGEST:
        raise TooLarge(
            f"the command has {len(data):,} bytes of arguments and environment, more than {_LARGEST:,}",
            hint="hand large input over in a file",
        )
    return data


def broke(message: dict[str, Any]) -> Ended:
    """It never became the command."""
    number = message["errno"]
    if number in _NOT_FOUND:
        return Ended(reason="not_found")
    if number in _NOT_EXECUTABLE:
        return Ended(reason="not_executable")
    return Ended(reason="not_started", message=f"could not be started: {message['text']}")


def ended(message: dict[str, Any]) -> Ended:
    code = os.waitstatus_to_exitcode(message["status"])
    return Ended(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        reason=message["reason"] or _LIMIT_SIGNALS.get(-code, ""),
        seconds=message["seconds"],
        cpu_seconds=message["cpu"],
        max_rss=message["rss"],
    )


def explained(ended: Ended, command: Command) -> Ended:
    """With a message for people."""
    limits, name = command.limits, command.argv[0]
    texts: dict[EndReason, str] = {
        "": _by_itself(ended),
        "time": f"took longer than {limits.seconds or 0:g} s",
        "cpu": f"used more than {limits.cpu or 0:g} s of processor time",
        "memory": f"used more than {limits.memory or 0:,} bytes of memory",
        "output": f"wrote far more output than the {limits.output:,} bytes that are kept",
        "disk": f"put more than {limits.disk or 0:,} bytes into its folder",
        "processes": f"had more than {limits.processes:,} processes at once",
        "cancelled": "was cancelled",
        "lost": "was ended because the process that kept it had died",
        "not_found": f"the command '{name}' does not exist on this worker, or the interpreter it names",
        "not_executable": f"the command '{name}' is not an executable program; a script begins with #!",
    }
    return msgspec.structs.replace(ended, message=ended.message or texts[ended.reason])


def _by_itself(ended: Ended) -> str:
    if ended.signal is not None:
        return f"was ended by {_signal_name(ended.signal)}"
    return f"ended with exit code {ended.code}" if ended.code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
