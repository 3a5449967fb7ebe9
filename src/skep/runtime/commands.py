"""What a command may be, how the keeper is told of it, and how its end is told to people."""

import errno
import hashlib
import os
import platform
import re
import shutil
import signal
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput, TooLarge
from skep.config.settings import Settings
from skep.runtime.isolation import path
from skep.tasks.model import PACKAGE, Command, EndReason, Facts, Limits, RunEnded, Sample, TaskSpec

#: one message to the keeper; a socket takes no larger one at once
_LARGEST = 128 << 10
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)
_NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.EPERM)
#: variables that Skep itself gives to tasks and to its own programs
RESERVED = frozenset(
    f"SKEP_{name}"
    for name in (
        *("TASK", "ATTEMPT", "CONTEXT", "PROPERTIES", "API", "TOKEN", "RUNTIME"),
        *("MEASURE", "MIRROR", "CODE", "VARIABLES", "COMMIT"),
    )
)
_LIMIT_SIGNALS: dict[int, EndReason] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}


def offered(settings: Settings) -> list[str]:
    """The programs of tasks that this worker may run: `command` is any; of packages `command:package`."""
    programs = [f"command:{name}" if name != "*" else "command" for name in settings.task_commands]
    return programs + [f"{PACKAGE}:{name}" if name != "*" else PACKAGE for name in settings.task_packages]


def allowed(spec: TaskSpec, settings: Settings) -> str:
    """Empty, or why this worker does not run it. A command that runs others, such as sh, lets all of them in.

    Compared with what is executed: a name is looked up in the worker's PATH, and a path is another command.
    """
    name, setting, names = "".join(spec.argv[:1]), "task_commands", settings.task_commands
    if spec.package and "*" not in names:
        name, setting, names = spec.package.rpartition("/")[0], "task_packages", settings.task_packages
    if "*" in names or name in names:
        return ""
    return f"this worker may not run '{name}': its setting {setting} does not name it"


def refused_variables(variables: Iterable[str], programs: Iterable[str], settings: Settings) -> str:
    """Empty, or which variable these programs (commands or packages) may not be given, and why."""
    for name in variables:
        if name in RESERVED:
            return f"the variable {name} is set by Skep, a task must not set it"
        for program in programs:
            if not any(_may_set(rule, program, name) for rule in settings.task_variables):
                return f"'{program}' may not be given the variable {name}: the setting task_variables does not name it"
    return ""


def _may_set(rule: str, program: str, name: str) -> bool:
    only, _, pattern = rule.rpartition(":")
    return only in ("", program) and fnmatchcase(name, pattern)


def limited(command: Command, settings: Settings, folder: Path) -> Command:
    """With every limit; BadInput for one that is above what the settings allow. `folder`: on the disk in question."""
    free, memory = shutil.disk_usage(folder).free, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = {
        "seconds": settings.task_max_seconds,
        "cpu": settings.task_max_cpu,
        "memory": settings.task_max_memory or memory * 3 // 4,
        "disk": settings.task_max_disk or max(1, free // 2),
        "processes": settings.task_max_processes,
    }
    limits = msgspec.structs.asdict(command.limits)
    for name, bound in most.items():
        if getattr(settings, f"task_max_{name}") and (limits[name] or 0) > bound:
            hint = "ask for less, or raise the setting"
            raise BadInput(f"the limit {name} is {limits[name]:,}, above task_max_{name} ({bound:,})", hint=hint)
        limits[name] = bound if limits[name] is None else limits[name]
    return msgspec.structs.replace(command, limits=Limits(**limits))


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
    return name if "/" in name else shutil.which(name, path=path())


def environment(command: Command, folder: Path) -> dict[str, str]:
    """Made from nothing: what the worker knows is no business of a task."""
    return {
        "PATH": path(),
        "LANG": "C.UTF-8",
        "HOME": str(folder / "work"),
        "TMPDIR": str(folder / "tmp"),
        **command.environment,
        "SKEP_TASK": command.task,
        "SKEP_ATTEMPT": str(command.attempt),
        "SKEP_CONTEXT": command.context,
        "SKEP_PROPERTIES": msgspec.json.encode(command.properties).decode(),
    }


def order(
    command: Command, name: str, path: str, folder: Path, variables: dict[str, str], plan: dict[str, Any]
) -> bytes:
    """What the keeper is told."""
    told = {
        "start": name,
        "path": path,
        "argv": command.argv,
        "environment": variables,
        "folder": str(folder / "work"),
        "limits": msgspec.structs.asdict(command.limits),
        "grace": command.grace,
        "sandbox": plan,
    }
    if len(data := msgspec.json.encode(told)) > _LARGEST:
        raise TooLarge(
            f"the command has {len(data):,} bytes of arguments and environment, more than {_LARGEST:,}",
            hint="hand large input over in a file",
        )
    return data


def broke(message: dict[str, Any]) -> RunEnded:
    """It never became the command."""
    number = message["errno"]
    if number in _NOT_FOUND:
        return RunEnded(reason="not_found")
    if number in _NOT_EXECUTABLE:
        return RunEnded(reason="not_executable")
    return RunEnded(reason="not_started", message=f"could not be started: {message['text']}")


def ended(message: dict[str, Any], exited: dict[str, Any]) -> RunEnded:
    """`exited`: what the first process of an isolated run reported of the command; empty when it could not."""
    message = message | {name: value for name, value in exited.items() if name in ("status", "cpu", "rss")}
    code = os.waitstatus_to_exitcode(message["status"])
    return RunEnded(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        reason=message["reason"] or _LIMIT_SIGNALS.get(-code, ""),
        seconds=message["seconds"],
        cpu_seconds=message["cpu"],
        max_rss=message["rss"],
    )


def explained(ended: RunEnded, command: Command) -> RunEnded:
    """With a message for people."""
    limits, name = command.limits, command.argv[0]
    texts: dict[EndReason, str] = {
        "": _by_itself(ended),
        "time": f"took longer than {limits.seconds or 0:g} s",
        "cpu": f"used more than {limits.cpu or 0:g} s of processor time",
        "memory": f"used more than {limits.memory or 0:,} bytes of memory",
        "output": f"wrote far more output than the {limits.output:,} bytes that are kept",
        "disk": f"put more than {limits.disk or 0:,} bytes into its folder",
        "processes": f"had more than {limits.processes or 0:,} processes at once",
        "cancelled": "was cancelled",
        "lost": "was ended because the process that kept it had died",
        "lease": "ended, because its worker stood still for longer than its lease",
        "not_found": f"the command '{name}' is not there for tasks of this worker, or the interpreter it names",
        "not_executable": f"the command '{name}' is not an executable program; a script begins with #!",
    }
    return msgspec.structs.replace(ended, message=ended.message or texts[ended.reason])


def _by_itself(ended: RunEnded) -> str:
    if ended.signal is not None:
        return f"was ended by {_signal_name(ended.signal)}"
    return f"ended with exit code {ended.code}" if ended.code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The machine of a worker: facts that tasks select by, and samples of its load. Read from /proc; Linux only.

_LIMITS = {
    "seconds": "SIGTERM to its group when the time is over, after the grace SIGKILL to all it started",
    "cpu": "watched for all it started together; RLIMIT_CPU for each process",
    "memory": "watched as the resident memory of all it started; RLIMIT_DATA of twice as much for each process",
    "output": "counted as it is read; ten times as much ends it",
    "disk": "its folder is watched; RLIMIT_FSIZE for each file",
    "processes": "watched, at least once a second",
}


class Machine:
    """`folder` says which disk is meant."""

    def __init__(self, folder: Path, settings: Settings, clock: Clock) -> None:
        self._folder = folder
        self._tools = settings.task_tools
        self._clock = clock
        self._cpu = _cpu()

    def facts(self) -> Facts:
        disk = shutil.disk_usage(self._folder)
        return Facts(
            os=platform.system().lower(),
            kernel=platform.release(),
            arch=platform.machine(),
            cpus=os.cpu_count() or 1,
            memory=_memory()["MemTotal"],
            disk_total=disk.total,
            disk_free=disk.free,
            python=platform.python_version(),
            tools={name: path for name in self._tools if (path := shutil.which(name))},
            limits=_LIMITS,
            machine=machine_class(),
        )

    def sample(self) -> Sample:
        (busy, total), (was_busy, was_total) = _cpu(), self._cpu
        self._cpu = busy, total
        memory, disk, (received, sent) = _memory(), shutil.disk_usage(self._folder), _network()
        return Sample(
            at=self._clock.now(),
            cpu_percent=100.0 * (busy - was_busy) / max(1, total - was_total),
            memory_used=memory["MemTotal"] - memory["MemAvailable"],
            memory_total=memory["MemTotal"],
            disk_used=disk.used,
            disk_free=disk.free,
            network_in=received,
            network_out=sent,
            load=os.getloadavg(),
            processes=sum(path.name.isdigit() for path in Path("/proc").iterdir()),
        )


def machine_class() -> str:
    """The same on machines whose measurements may be compared: processor, number of cores, system."""
    model = next(
        (" ".join(line[2:]) for line in _lines("cpuinfo") if line[:2] == ["model", "name"]), platform.machine()
    )
    text = f"{model} x{os.cpu_count()} {platform.system().lower()}"
    digest = hashlib.blake2b(text.encode(), digest_size=3).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text).strip('-')[:60]}-{digest}"


def _lines(name: str) -> list[list[str]]:
    return [line.replace(":", " ").split() for line in Path("/proc", name).read_text().splitlines()]


def _cpu() -> tuple[int, int]:
    """Ticks of all cores: busy, and all. Guests are counted as users already."""
    ticks = [int(field) for field in _lines("stat")[0][1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _memory() -> dict[str, int]:
    return {line[0]: int(line[1]) * 1024 for line in _lines("meminfo")}


def _network() -> tuple[int, int]:
    """Bytes since the machine started, over all but the loopback."""
    lines = [line for line in _lines("net/dev")[2:] if line[0] != "lo"]
    return sum(int(line[1]) for line in lines), sum(int(line[9]) for line in lines)
