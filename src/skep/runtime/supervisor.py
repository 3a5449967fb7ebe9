"""The keeper: a small process beside the worker that starts commands, holds them to their limits and ends them.

An isolated command is in a process namespace: the kernel ends all of its processes with the first one (init.py).
Without isolation each command is the reaper of what it starts (as init is of everything), and the keeper is the reaper
of the commands. So while a command runs, all that it started is below it, and once it has ended, whatever is still
there is a child of the keeper: nothing escapes, whatever sessions or daemons it makes. When the worker goes away its
end of the socket closes, and the keeper ends everything and itself. It has no threads, so code between fork and exec
is safe here.
"""

import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

from skep.runtime import kernel, sandbox
from skep.runtime import sandbox as bubblewrap
from skep.runtime import sandbox as child
from skep.runtime import sandbox as init
from skep.runtime.kernel import Table, boot, everything, mark, tree, younger

_LARGEST = 256 << 10
#: what not even SIGKILL ends (a lost network drive) is not waited for any longer
_STUCK_SECONDS = 10.0
#: looking over all processes takes at most a twentieth of a core
_LOOK_SHARE = 4
_WATCH_SHARE, _WATCH_LEAST, _WATCH_MOST = 20, 0.05, 1.0
_LONGEST_NOTES = 10_000
_BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Run:
    def __init__(self, order: dict[str, Any], pid: int) -> None:
        self.name = order["start"]
        self.pid = pid
        self.limits = order["limits"]
        self.grace = order["grace"]
        self.began = time.monotonic()
        self.reason = ""
        self.time_at = self.began + (self.limits["seconds"] or float("inf"))
        self.kill_at = float("inf")
        #: its lease has ended
        self.expired = False
        self.backend = _backend(order)

    def own(self, table: Table) -> set[int]:
        """Processes that are ours, between the supervisor and the command."""
        if self.backend == "none":
            return set()
        first = {pid for pid, process in table.items() if process.parent == self.pid}
        return {self.pid, *first} if self.backend == "bubblewrap" else {self.pid}

    def end(self, reason: str, grace: float) -> None:
        """The first reason stays; a later call may only shorten the grace."""
        self.reason = self.reason or reason
        self.time_at = float("inf")
        self.kill_at = min(self.kill_at, time.monotonic() + grace)
        if grace > 0:
            self._ask()

    def _ask(self) -> None:
        if self.backend != "bubblewrap":
            self.signal(signal.SIGTERM)
            return
        for pid in self.own(everything()) - {self.pid}:  # bubblewrap itself passes no signal on
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def signal(self, number: int) -> None:
        with suppress(PermissionError):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it has no group of its own until it has got that far
                os.kill(self.pid, number)

    def ended(self, status: int, usage: Any) -> dict[str, Any]:
        return {
            "ended": self.name,
            "status": status,
            "reason": self.reason,
            "seconds": time.monotonic() - self.began,
            **child.used(usage),
        }


class Keeper:
    def __init__(self, line: socket.socket, notes: int) -> None:
        """`notes` is a file that names the keeper and, before it becomes a command, each of its children."""
        self._line = line
        self._notes = notes
        self._noted = 0
        self._runs: dict[int, _Run] = {}
        #: ended commands, until nothing that they started is left
        self._over: list[tuple[_Run, dict[str, Any]]] = []
        self._over_at = 0.0
        self._look_at = 0.0
        self._stuck: set[int] = set()
        self._watch_at = 0.0
        self._user = os.getuid(), os.getgid()
        #: when the right to run commands ends, unless the worker renews it
        self._lease_at = float("inf")
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files[1], self._files[1]))

    def serve(self) -> None:
        """Until the worker is gone."""
        bell, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(bell, select.POLLIN)
        while True:
            for file, _ in poll.poll(self._pause()):
                if file == bell:
                    os.read(bell, 4096)
                elif not self._hear():
                    return
            self._reap()
            self._hurry()
            if self._runs and time.monotonic() >= self._watch_at:
                self._watch()

    def end_everything(self) -> None:
        for run in self._runs.values():
            run.signal(signal.SIGKILL)
        while _has_children():
            self._end(tree(everything(), [os.getpid()]) - {os.getpid()})
            time.sleep(0.005)

    def note(self) -> None:
        """Begins the file again: whoever is alive, and no more."""
        os.ftruncate(self._notes, 0)
        lines = [boot(), *(mark(pid) for pid in (os.getpid(), *self._runs))]
        os.write(self._notes, "".join(f"{line}\n" for line in lines).encode())
        self._noted = len(self._runs)

    def _pause(self) -> float | None:
        due = [min(run.time_at, run.kill_at) for run in self._runs.values()]
        due += [self._watch_at] if self._runs else []
        due += [self._lease_at] if any(not run.expired for run in self._runs.values()) else []
        due += [self._look_at] if self._over else []
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _hear(self) -> bool:
        try:
            data, files, *_ = socket.recv_fds(self._line, _LARGEST, 2)
        except ConnectionError:
            return False
        if not data:
            return False
        for file in files:
            os.set_inheritable(file, False)
        order = json.loads(data)
        if "start" in order:
            self._start(order, files)
        elif "lease" in order:
            self._lease_at = order["lease"]
        else:
            for run in self._runs.values():
                if run.name == order["end"]:
                    run.end(order["reason"], order["grace"])
        return True

    def _start(self, order: dict[str, Any], files: list[int]) -> None:
        keeper = os.getpid()
        if self._noted > _LONGEST_NOTES:
            self.note()
        try:
            pid = kernel.clone(sandbox.flags_of(order["sandbox"])) if _backend(order) == "namespaces" else os.fork()
        except OSError as error:
            self._tell(_unready(order, error))
            self._tell(_Run(order, 0).ended(127 << 8, resource.getrusage(resource.RUSAGE_SELF)))
        else:
            if pid == 0:
                self._become(order, files, keeper)
            self._watch_at = self._watch_at if self._runs else time.monotonic() + _WATCH_LEAST
            self._runs[pid] = _Run(order, pid)
            self._noted += 1
        for file in files:
            os.close(file)

    def _become(self, order: dict[str, Any], files: list[int], keeper: int) -> NoReturn:
        """In the child. Its last words go straight to the worker."""
        tell = init.teller(self._line)
        try:
            if _backend(order) == "none":
                child.become(order, files, keeper, self._notes, self._files)
            init.begin(keeper, self._notes)
            if _backend(order) == "bubblewrap":
                bubblewrap.bubblewrap_execute(order, self._line.fileno(), files, self._files)
            else:
                init.enter(order, *self._user, tell)
        except BaseException as error:
            tell(child.broke(order, error) if _backend(order) == "none" else _unready(order, error), [])
            os._exit(127)
        init.serve(order, files, self._files, tell)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = found
                if (run := self._runs.pop(pid, None)) is not None:
                    self._over_at = self._over_at if self._over else time.monotonic()
                    self._over.append((run, run.ended(status, usage)))
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
        if self._over and time.monotonic() >= self._look_at:
            self._settle()

    def _settle(self) -> None:
        """Tell of what has ended, once nothing that it left is alive; of many at once when many end at once."""
        began = time.monotonic()
        orphans = self._orphans()
        self._end(orphans)
        self._look_at = time.monotonic() + _LOOK_SHARE * (time.monotonic() - began)
        if time.monotonic() > self._over_at + _STUCK_SECONDS:
            self._stuck |= orphans
        if orphans <= self._stuck:
            for _, message in self._over:
                self._tell(message)
            self._over.clear()

    def _orphans(self) -> set[int]:
        """A child that is no command was left by one that has ended."""
        if not self._runs and not _has_children():
            return set()
        oldest = min((run for run, _ in self._over), key=lambda run: run.began)
        table = younger(oldest.pid) if time.monotonic() < oldest.began + 1 else everything()
        return {pid for pid, process in table.items() if process.parent == os.getpid() and pid not in self._runs}

    def _end(self, pids: set[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                # a group dies in one moment, however fast it forks
                if (group := os.getpgid(pid)) != os.getpgid(0):
                    os.killpg(group, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)

    def _hurry(self) -> None:
        now = time.monotonic()
        for run in self._runs.values():
            if now >= self._lease_at and not run.expired:
                run.expired = True
                run.end("lease", 0)
            if now >= run.time_at:
                run.end("time", run.grace)
            if now >= run.kill_at:
                run.signal(signal.SIGKILL)
                run.kill_at = now + 0.1

    def _watch(self) -> None:
        began = time.monotonic()
        table = everything()
        for run in self._runs.values():
            if reason := _beyond(run, table):
                run.end(reason, 0)
        now = time.monotonic()
        self._watch_at = now + min(max((now - began) * _WATCH_SHARE, _WATCH_LEAST), _WATCH_MOST)
        self._hurry()

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the worker is gone: the end of its line tells
            self._line.send(json.dumps(message).encode())


def _beyond(run: _Run, table: Table) -> str:
    every = tree(table, [run.pid]) & table.keys()
    its = [table[pid] for pid in every - run.own(table)]
    used = {
        "processes": len(its),
        "memory": sum(process.rss for process in its),
        "cpu": sum(table[pid].cpu for pid in every),
    }
    return next((name for name, amount in used.items() if amount > (run.limits[name] or float("inf"))), "")


def _has_children() -> bool:
    """Also reaps; so only where no command is left to be waited for."""
    try:
        while os.wait4(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _backend(order: dict[str, Any]) -> str:
    return str(order["sandbox"]["backend"])


def _unready(order: dict[str, Any], error: BaseException) -> dict[str, Any]:
    """It did not come to the command, so what is wrong is not the command."""
    return child.broke(order, error) | {"errno": None}


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    notes = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        with suppress(OSError):
            os.set_inheritable(file, file <= 2)
    # whoever waits for this lock knows that the keeper has ended; children hold it until they are commands
    fcntl.flock(notes, fcntl.LOCK_EX)
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    kernel.become_reaper()
    gc.freeze()
    keeper = Keeper(line, notes)
    keeper.note()
    keeper.serve()
    keeper.end_everything()


if __name__ == "__main__":
    main()
