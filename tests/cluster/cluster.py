"""A whole fleet of real processes on one PostgreSQL, and what must be true of it whatever happened."""

import socket
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from skep.testing.forge import Forge, Repo
from skep.testing.server import free_port
from tests.cluster.fleet import Coordinator, Member, api, until

#: short times, so that a test need not wait
FAST: dict[str, Any] = {"beat_every": 0.5, "grace": 6.0, "task_lease": 4.0}
POLL: dict[str, Any] = {"poll_min": 0.3, "poll_max": 1.0, "index_analyse": False}


class Line:
    """A way to a server that can be cut, and mended."""

    def __init__(self, target: str, listener: socket.socket | None = None) -> None:
        self._target = target.rpartition(":")
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self.whole = True
        #: bytes, there and back
        self.carried = [0, 0]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.whole = False
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if not self.whole:
                return
            with socket.create_connection((self._target[0], int(self._target[2]))) as far:
                self._open |= {near, far}
                back = threading.Thread(target=self._copy, args=(far, near, 1), daemon=True)
                back.start()
                self._copy(near, far, 0)
                back.join()
                self._open -= {near, far}

    def _copy(self, source: socket.socket, sink: socket.socket, way: int) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.carried[way] += len(data)
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Cluster:
    """Coordinators that share a database, and workers that know all of them, each through a line of its own."""

    def __init__(self, folder: Path, database: str, forge: Forge, stack: ExitStack, **settings: Any) -> None:
        self._folder = folder
        self._stack = stack
        self.forge = forge
        self.repos: dict[str, Repo] = {}
        self.workers: list[Member] = []
        self.lines: list[Line] = []
        self._joined: list[Member] = []
        token = folder / "token"
        token.write_text("shared-by-all-of-this-test-fleet")
        self._common = {"token_file": str(token), **FAST, **settings}
        self.coordinators = [
            stack.enter_context(
                Coordinator(
                    folder / f"coordinator-{n}",
                    tls=False,
                    roles=["coordinator", "aggregator", "manager"],
                    database=database,
                    name=f"coordinator-{n}",
                    listen=f"127.0.0.1:{free_port()}",
                    **self._common,
                )
            )
            for n in range(2)
        ]

    @property
    def server(self) -> Coordinator:
        """One that runs."""
        return next(one for one in self.coordinators if one.process.poll() is None)

    def join(self, data: Path | None = None, **settings: Any) -> Member:
        line = [Line(one.link) for one in self.coordinators]
        for one in line:
            self._stack.callback(one.close)
        self.lines += line
        addresses = [one.address for one in line]
        folder = data or self._folder / f"worker-{len(self.workers)}"
        member = Member(folder, coordinators=addresses, **{**self._common, **POLL, **settings})
        self.workers.append(self._stack.enter_context(member))
        self._joined.append(member)
        return member

    def add(self, count: int) -> None:
        for _ in range(count):
            name = f"repo/{len(self.repos)}"
            self.repos[name] = self.forge.create(name, {"a.txt": name.encode()})
            self.server.cli("source", "add", self.forge.url(name))

    def commit(self, name: str, text: str) -> None:
        self.repos[name].commit({"a.txt": text.encode()})

    def sources(self) -> dict[str, dict[str, Any]]:
        """By the name of their repository."""
        found = api(self.server, "sources", limit="1000")["items"]
        return {one["url"].partition(f":{self.forge.port}/")[2]: one for one in found}

    def heads(self) -> dict[str, str]:
        return {name: head_of(repo.folder) for name, repo in self.repos.items()}

    def told(self) -> dict[str, str]:
        """The newest version of each that was told."""
        newest: dict[str, str] = {}
        for name, source in self.sources().items():
            items = api(self.server, f"sources/{source['id']}/changes", limit="100")["items"]
            newest[name] = next((one["new"] for one in items if one["entry"] == "refs/heads/main"), "")
        return newest

    def settle(self) -> None:
        """Everything upstream has is told; one worker polls each source, and its mirror, the only one, has it all."""
        heads = self.heads()
        until(lambda: self.told() == heads, self.server)
        wanted = {name: [head] for name, head in heads.items()}
        try:
            until(lambda: self.mirrored() == wanted, self.server)
        except AssertionError as error:
            raise AssertionError(f"{self.mirrored()} is not {wanted}; {api(self.server, 'workers')}") from error
        until(lambda: sorted(self.polled()) == sorted(one["id"] for one in self.sources().values()), self.server)

    def mirrored(self) -> dict[str, list[str]]:
        return {
            name: [
                head
                for worker in self.workers
                for mirror in (worker.data / "mirrors").glob(f"*/*/{source['id']}.git")
                if (head := head_of(mirror))
            ]
            for name, source in self.sources().items()
        }

    def polled(self) -> list[str]:
        """Ids of what workers look at, as often as somebody does."""
        found: list[str] = []
        for worker in self.workers:
            with closing(sqlite3.connect(f"file:{worker.data / 'worker' / 'worker.db'}?mode=ro", uri=True)) as db:
                found += [row[0] for row in db.execute("SELECT source FROM held WHERE released = 0")]
        return found

    def check(self) -> None:
        """Nothing is missing, nothing was told twice, and no upstream was asked for everything again."""
        for one in self.coordinators:
            assert one.process.poll() is None, one.tail()
        for source in self.sources().values():
            changes = api(self.server, f"sources/{source['id']}/changes", limit="1000")["items"]
            assert len({one["id"] for one in changes}) == len(changes)
            moves = [one for one in reversed(changes) if one["entry"] == "refs/heads/main"]
            assert [one["seq"] for one in moves] == list(range(1, len(moves) + 1))
            assert [one["old"] for one in moves[1:]] == [one["new"] for one in moves[:-1]]
        bodies: dict[str, Any] = {}
        for message in self._messages():
            assert bodies.setdefault(message["id"], message) == message
        clones = Counter(request.path for request in self.forge.requests if request.clone)
        twice = [path for path, count in clones.items() if count > 1]
        ids = [source["id"] for name, source in self.sources().items() if any(name in path for path in twice)]
        why = [line for one in self._joined for line in one.log if any(id in line for id in ids)]
        assert not twice, (twice, "".join(why))

    def _messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = api(self.server, "topics/skep.changes/messages", offset=str(len(found)), limit="1000")
            if not page["messages"]:
                return found
            found += [dict(one["body"]) for one in page["messages"]]


def head_of(folder: Path) -> str:
    asked = ["git", "-C", str(folder), "rev-parse", "--verify", "-q", "refs/heads/main"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def cluster(folder: Path, database: str, **settings: Any) -> Iterator[Cluster]:
    with ExitStack() as stack:
        forge = stack.enter_context(Forge(folder / "forge"))
        yield Cluster(folder, database, forge, stack, **settings)
