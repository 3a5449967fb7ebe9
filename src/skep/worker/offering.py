"""What a worker offers to tasks: the kinds it does, its places for them, and what its machine is like."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path

from skep.clock import Clock
from skep.config import Settings
from skep.model.member import Offer
from skep.model.run import Sample
from skep.model.task import Run
from skep.runtime.commands import allowed, full, offered
from skep.runtime.facts import Machine

#: less cannot come between two tasks that are asked for at once
_LEAST_OWN_SLOTS = 2
#: tasks that wait for what others do
_WAITING = 1000
#: no more than this part of a disk is kept free
_SMALLEST_PART = 8


class Offering:
    def __init__(self, settings: Settings, folder: Path, clock: Clock, kinds: Iterable[str], isolation: str) -> None:
        self._settings = settings
        self._isolation = isolation
        self._folder = folder
        self._full = False
        self._clock = clock
        self._machine = Machine(folder, settings, clock)
        self._facts = self._machine.facts()
        self._sample = self._machine.sample()
        self._kinds = (*kinds, *(offered(settings) if settings.run_tasks else ()))

    def offer(self) -> Offer:
        facts, sample = self._facts, self.sample()
        cores = os.cpu_count() or 1
        processes = self._settings.index_processes or cores
        return Offer(
            kinds=self._kinds,
            slots={
                "own": max(_LEAST_OWN_SLOTS, processes),
                "background": processes,
                "command": self._settings.task_slots or max(2, cores),
                "waiting": _WAITING,
            },
            labels=self._settings.labels,
            tools=tuple(sorted(facts.tools)),
            facts={
                "os": facts.os,
                "kernel": facts.kernel,
                "arch": facts.arch,
                "machine": facts.machine,
                "python": facts.python,
                "isolation": self._isolation,
                "network": "yes" if self._settings.task_network else "no",
                "cpu": float(facts.cpus),
                "memory": float(facts.memory),
                "disk": float(facts.disk_total),
                "disk_free": float(sample.disk_free),
                "memory_used": float(sample.memory_used),
                "load": sample.load[0],
                "cpu_percent": round(sample.cpu_percent, 1),
                "network_in": float(sample.network_in),
                "network_out": float(sample.network_out),
                "processes": float(sample.processes),
                "sampled_at": sample.at,
                **{f"limit.{name}": how for name, how in facts.limits.items()},
            },
            mirror=self._settings.mirror,
            name=self._settings.name or socket.gethostname(),
            capacity=self._settings.capacity,
        )

    def sample(self) -> Sample:
        if self._clock.now() - self._sample.at >= self._settings.sample_every:
            self._sample = self._machine.sample()
        return self._sample

    def ill(self) -> str:
        """Why nothing can be mirrored here; asked with each beat."""
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            return f"its disk cannot be read: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        if found.f_flag & os.ST_RDONLY:
            return "its disk cannot be written to"
        # of a small disk a part; and once it began to give away, a little more room must come before it stops
        reserve = min(self._settings.disk_reserve, found.f_blocks * found.f_frsize // _SMALLEST_PART)
        self._full = free < reserve * (2 if self._full else 1)
        return f"{free:,} bytes are left on its disk, of {reserve:,} to be kept" if self._full else ""

    def refusal(self, run: Run, running: int) -> str:
        """Why a command is not run here and now; the dispatcher may know less than this machine does."""
        if run.spec.kind != "command":
            return ""
        return allowed(run.spec, self._settings) or full(self._settings, running, self.sample())
