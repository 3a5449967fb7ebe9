"""The processes of a run: PostgreSQL, coordinators, an aggregator and workers, each in the namespace of its member."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from tests.chaos.journal import FaultBegun, FaultEnded, Journal, Unexpected
from tests.chaos.schedule import (
    COORDINATORS,
    DATABASE,
    GRACE,
    GROUP_LEASE,
    HEARTBEAT,
    LEASE,
    SERVERS,
    SKEP,
    UPSTREAM,
    WORKERS,
    Event,
)
from tests.chaos.world import NETWORK, World, address_of
from tests.house.running import SKEP as COMMAND
from tests.house.running import environment
from tests.support.forge import Forge
from tests.support.postgres import Postgres, postgres_server

_START_SECONDS = 120.0
#: more than a process takes to end in good order
STOP_SECONDS = 60.0
#: as the service manager of a machine waits before it starts a process again
_RESTART_SECONDS = 1.0
#: wrong settings, and another process of the same member: a service manager does not start these again
_FINAL_CODES = (2, 7)
_HTTP, _LINK = 7337, 7338
#: tasks write what they do to files in this folder
EFFECTS = "effects"
_FAST: dict[str, Any] = {
    "beat_every": HEARTBEAT,
    "grace": GRACE,
    "task_lease": LEASE,
    "member_seconds": GROUP_LEASE,
    "poll_min": 0.3,
    "poll_max": 1.0,
    "index_analyse": False,
    "index_processes": 1,
    "workers_expected": len(WORKERS),
    "first_wait": 30.0,
    "allow_networks": [NETWORK],
    "task_commands": ["sh"],
    "task_slots": 6,
}


class Process:
    """One `skep` command. Its output is appended to a file."""

    def __init__(self, world: World, member: str, role: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.member = member
        self.data = folder / member
        self.log = folder / "logs" / f"{member}.log"
        self._world = world
        self._command = [*COMMAND, role, "--data", str(self.data)]
        self._environment = environment(dict(settings)) | {"XDG_STATE_HOME": str(folder / f"state-{member}")}
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._world.inside(self.member), self.log.open("ab") as log:
            log.write(b"--- started\n")
            self.child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def wait(self) -> bool:
        """False when it does not end."""
        try:
            if self.child is not None:
                self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def url(self) -> str:
        return f"http://{address_of(self.member)}:{_HTTP}"

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def is_ready(self) -> bool:
        with (
            suppress(OSError, HTTPException),
            closing(HTTPConnection(address_of(self.member), _HTTP, timeout=5)) as line,
        ):
            line.request("GET", "/healthz")
            return line.getresponse().status == 200
        return False


class Fleet:
    def __init__(self, world: World, folder: Path, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._folder = folder
        self._stack = ExitStack()
        #: members that a fault holds down: that they do not run is expected
        self._down: set[str] = set(SKEP)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        (folder / "logs").mkdir()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._supervisor.join()
        self._stack.close()

    def _start(self) -> None:
        with self._world.inside(DATABASE):
            server = postgres_server(host=address_of(DATABASE), network=NETWORK)
            self.postgres: Postgres = self._stack.enter_context(server)
        with self._world.inside(UPSTREAM):
            self.forge = self._stack.enter_context(Forge(self._folder / "upstream", host=address_of(UPSTREAM)))
        self.processes = {member: self._process(member) for member in SKEP}
        self._supervisor.start()
        self._begin(COORDINATORS[0])
        self.wait_ready([COORDINATORS[0]])
        for member in SKEP[1:]:
            self._begin(member)
        self.wait_ready(SERVERS)

    def _process(self, member: str) -> Process:
        tls = self._folder / "ca" / "tls"
        if not tls.exists():
            hosts = [address_of(server) for server in SERVERS]
            made = [*COMMAND, "ca", "init", *hosts, "--data", str(tls.parent)]
            subprocess.run(made, check=True, capture_output=True, env=environment({}))
            (self._folder / "token").write_text("shared-by-all-members-of-this-run")
        settings = {
            **_FAST,
            "name": member,
            "task_writable_paths": [str(self._folder / EFFECTS)],
            "token_file": str(self._folder / "token"),
            "tls_ca": str(tls / "ca.crt"),
            "coordinators": [f"{address_of(one)}:{_LINK}" for one in COORDINATORS],
        }
        if member in WORKERS:
            return Process(self._world, member, "worker", self._folder, settings)
        settings |= {
            "database": self.postgres.url,
            "listen": f"{address_of(member)}:{_HTTP}",
            "link_listen": f"{address_of(member)}:{_LINK}",
            "tls_cert": str(tls / "link.crt"),
            "tls_key": str(tls / "link.key"),
        }
        if member in COORDINATORS:
            settings["roles"] = ["coordinator", "aggregator", "manager"]
        role = "coordinator" if member in COORDINATORS else "aggregator"
        return Process(self._world, member, role, self._folder, settings)

    def wait_ready(self, servers: tuple[str, ...] | list[str] = SERVERS) -> None:
        end = time.monotonic() + _START_SECONDS
        for server in servers:
            while not self.processes[server].is_ready():
                if time.monotonic() > end:
                    log = self.processes[server].log
                    raise RuntimeError(f"{server} is not ready: {log.read_text()[-3000:]} (all of it: {log})")
                time.sleep(0.1)

    # faults

    def apply(self, event: Event) -> None:
        self._journal.write(FaultBegun(self._journal.now(), str(event)))
        match event.kind:
            case "cut" | "block":
                self._world.cut(event)
            case "restart":
                self.postgres.stop(signal.SIGINT)
            case "crash":
                self.postgres.stop(signal.SIGQUIT)
            case "pause":
                self._pause(event.target, signal.SIGSTOP)
            case "kill":
                self._end(event.target, signal.SIGKILL)
            case "terminate":
                self._end(event.target, signal.SIGTERM)

    def revert(self, event: Event) -> None:
        match event.kind:
            case "cut" | "block":
                self._world.heal(event)
            case "restart" | "crash":
                with self._world.inside(DATABASE):
                    self.postgres.start()
            case "pause":
                self._pause(event.target, signal.SIGCONT)
            case "kill" | "terminate":
                self._begin(event.target)
        self._journal.write(FaultEnded(self._journal.now(), str(event)))

    def _pause(self, member: str, number: int) -> None:
        """Of PostgreSQL each process, of the others the one that was started: what it started itself goes on."""
        if member != DATABASE:
            return self.processes[member].signal(number)
        for pid in self._world.processes(DATABASE):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return None

    def _end(self, member: str, number: int) -> None:
        with self._lock:
            self._down.add(member)
        process = self.processes[member]
        process.signal(number)
        if not process.wait():
            self._unexpected(f"{member} did not end within {STOP_SECONDS:g} s of signal {number}")
            process.signal(signal.SIGKILL)
            process.wait()

    def _begin(self, member: str) -> None:
        with self._lock:
            self.processes[member].start()
            self._down.discard(member)

    def _supervise(self) -> None:
        """Starts again what ended by itself."""
        while not self._over.wait(_RESTART_SECONDS):
            with self._lock:
                for member in SKEP:
                    child = self.processes[member].child
                    if member not in self._down and child is not None and child.poll() is not None:
                        self._ended(member, child.returncode)

    def _ended(self, member: str, code: int) -> None:
        self._journal.write(FaultBegun(self._journal.now(), f"{member} ended by itself with {code}, starts again"))
        if code in _FINAL_CODES or code <= 0:
            self._unexpected(f"{member} ended by itself with {code}")
        self.processes[member].start()

    def _unexpected(self, what: str) -> None:
        self._journal.write(Unexpected(self._journal.now(), what))

    # the end

    def stop(self) -> list[str]:
        """Ends all members in good order; returns the processes that are left."""
        self._over.set()
        self._supervisor.join()
        for member in SKEP:
            self.processes[member].signal(signal.SIGCONT)
            self.processes[member].signal(signal.SIGTERM)
        for member in SKEP:
            if not self.processes[member].wait():
                self._unexpected(f"{member} did not end within {STOP_SECONDS:g} s of SIGTERM")
        return [f"{member}: {pid} {line}" for member in SKEP for pid, line in self._left(member).items()]

    def _left(self, member: str) -> dict[int, str]:
        """What a member has started ends with it, or a moment later."""
        end = time.monotonic() + STOP_SECONDS
        while (left := self._world.processes(member)) and time.monotonic() < end:
            time.sleep(0.1)
        return left
