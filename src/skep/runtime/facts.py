"""The machine of a worker: facts that tasks select by, and samples of its load. Read from /proc; Linux only."""

import hashlib
import os
import platform
import re
import shutil
from pathlib import Path

from skep.clock import Clock
from skep.config import Settings
from skep.model.run import Facts, Sample

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
