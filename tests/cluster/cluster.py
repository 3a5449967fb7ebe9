"""A whole fleet of real processes on one PostgreSQL, and what must be true of it whatever happened."""

import socket
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from skep.sources.git.mirror import folder_of
from skep.testing.server import free_port
from tests.cluster.fleet import Coordinator, Member, api, until
from tests.house.running import RunningSkep
from tests.support.forge import Forge, Repo

#: short times, so that a test need not wait; but a machine that stalls for some seconds has lost no worker
FAST: dict[str, Any] = {"beat_every": 0.5, "grace": 12.0, "task_lease": 4.0}
POLL: dict[str, Any] = {"poll_min": 0.3, "poll_max": 1.0, "index_analyse": False}
#: name -> object
Refs = dict[str, str]


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
        self._names: Iterator[int] = count()
        #: by repository, how often it may have been asked for everything
        self._clones: Counter[str] = Counter()
        self._excused: set[str] = set()
        self._replicas = settings.get("replicas", 1)
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
        folder = data or self._folder / f"worker-{len(self._joined)}"
        member = Member(folder, coordinators=addresses, **{**self._common, **POLL, **settings})
        self.workers.append(self._stack.enter_context(member))
        self._joined.append(member)
        return member

    def token(self) -> str:
        """A file with one that is nobody's yet."""
        file = self._folder / f"token-{next(self._names)}"
        file.write_text(self.server.make_token())
        return str(file)

    def revoke(self, worker: Member) -> None:
        """The one that it joined with."""
        own = member_of(worker).removeprefix("wrk_")
        (id,) = (one["id"] for one in self.server.rows("worker", "tokens") if own in one["members"])
        self.server.cli("worker", "revoke", id)

    def forget(self, worker: Member) -> None:
        """As soon as it is seen to be silent."""
        id = member_of(worker)
        until(lambda: not self.server.cli("worker", "forget", id, check=False).returncode, self.server)

    def is_empty(self, worker: Member) -> bool:
        id = member_of(worker)
        (own,) = (one for one in api(self.server, "workers") if one["member"]["id"] == id)
        return not own["holds"] and not own["replicas"]

    def add(self, many: int) -> None:
        for _ in range(many):
            self.add_source(self.create())

    def create(self) -> str:
        name = f"repo/{next(self._names)}"
        self.repos[name] = self.forge.create(name, {"a.txt": name.encode()})
        return name

    def add_source(self, name: str) -> None:
        """It may be cloned once; once more when it was removed before."""
        self._clones[name] += 1
        self.server.cli("source", "add", self.forge.url(name))

    def remove(self, name: str) -> None:
        self._excused.add(f"/{name}")  # added again it is another source: its holder knows nothing of the last one's
        self.server.cli("source", "remove", "--yes", self.forge.url(name))

    def rename(self, name: str) -> str:
        """Upstream, and the source follows."""
        new = f"repo/{next(self._names)}"
        del self.repos[name]
        self.repos[new] = self.forge.rename(name, new)
        self.server.cli("source", "update", self.forge.url(name), "--url", self.forge.url(new))
        return new

    def holder(self, name: str) -> Member:
        """Who holds it now."""
        id = self.sources()[name]["id"]
        member = api(self.server, f"sources/{id}")["holder"]
        return next(one for one in self.workers if member_of(one) == member)

    def cloned(self, name: str) -> int:
        return sum(one.clone for one in self.forge.requests if one.path.startswith((f"/{name}/", f"/{name}.git/")))

    def may_clone(self, name: str) -> None:
        """Once more: whoever did it was killed."""
        self._clones[name] += 1

    def commit(self, name: str, text: str) -> None:
        self.repos[name].commit({"a.txt": text.encode()})

    def sources(self) -> dict[str, dict[str, Any]]:
        """By the name of their repository."""
        found = api(self.server, "sources", limit="1000")["items"]
        return {one["url"].partition(f":{self.forge.port}/")[2]: one for one in found}

    def upstream(self) -> dict[str, Refs]:
        return {name: repo.refs() for name, repo in self.repos.items()}

    def told(self) -> dict[str, Refs]:
        """What was told last of each ref."""
        newest: dict[str, Refs] = {}
        for name, source in self.sources().items():
            told = {one["entry"]: one["new"] for one in reversed(self._changes(source["id"]))}
            newest[name] = {ref: new for ref, new in told.items() if new and ref != "HEAD"}
        return newest

    def _changes(self, source: str) -> list[dict[str, Any]]:
        """The newest first."""
        return list(api(self.server, f"sources/{source}/changes", limit="1000")["items"])

    def settle(self) -> None:
        """Everything upstream has is told; one worker polls each source, and its mirror, the only one, has it all."""
        refs = self.upstream()
        until(lambda: self.told() == refs, self.server)
        wanted = {name: [its] * min(self._replicas, len(self.workers)) for name, its in refs.items()}
        try:
            until(lambda: self.mirrored() == wanted, self.server)
        except AssertionError as error:
            raise AssertionError(f"{self.mirrored()} is not {wanted}; {api(self.server, 'workers')}") from error
        until(lambda: sorted(self.polled()) == sorted(one["id"] for one in self.sources().values()), self.server)

    def mirrored(self) -> dict[str, list[Refs]]:
        return {
            name: [
                refs
                for worker in self.workers
                for mirror in (worker.data / "mirrors").glob(f"*/*/{source['id']}.git")
                if (refs := refs_at(str(mirror)))
            ]
            for name, source in self.sources().items()
        }

    def gathered(self) -> bool:
        """Would nobody have to clone if all workers lost what they have? Some coordinator has a copy of each source."""
        ids = [source["id"] for source in self.sources().values()]
        folders = [one.data / "gathered" for one in self.coordinators]
        return all(any(refs_at(str(folder_of(one, id))) for one in folders) for id in ids)

    def serves(self, server: RunningSkep) -> bool:
        """Are clones what upstream has, and do searches answer from its newest commits?"""
        refs = self.upstream()
        ids = {name: source["id"] for name, source in self.sources().items()}
        if any(refs_at(f"{server.url}/git/{ids[name]}.git") != its for name, its in refs.items()):
            return False
        hits = api(server, "search", q="file:a.txt")["hits"]
        heads = sorted((ids[name], its["refs/heads/main"]) for name, its in refs.items())
        return sorted((hit["source"], hit["commit"]) for hit in hits) == heads

    def polled(self) -> list[str]:
        """Ids of what workers look at, as often as somebody does."""
        found: list[str] = []
        for worker in self.workers:
            with closing(sqlite3.connect(f"file:{worker.data / 'worker' / 'worker.db'}?mode=ro", uri=True)) as db:
                found += [row[0] for row in db.execute("SELECT source FROM held WHERE released = 0 AND replica = 0")]
        return found

    def check(self) -> None:
        """Nothing is missing, nothing was told twice, and no upstream was asked for everything again."""
        for one in self.coordinators:
            assert one.process.poll() is None, one.tail()
        bodies: dict[str, Any] = {}
        for message in self._messages():
            assert bodies.setdefault(message["id"], message) == message
        for source in self.sources().values():
            changes = self._changes(source["id"])
            ids = [one["id"] for one in changes]
            assert sorted(ids) == sorted(id for id, body in bodies.items() if body["source"] == source["id"])
            for entry in {one["entry"] for one in changes}:
                moves = [one for one in reversed(changes) if one["entry"] == entry]
                assert [one["seq"] for one in moves] == list(range(1, len(moves) + 1))
                assert [one["old"] for one in moves] == [None, *(one["new"] for one in moves[:-1])]
        at_once = [(name.removeprefix("/"), at) for name, at in self.forge.at_once if name not in self._excused]
        assert not at_once, (at_once, self._story({name for name, _ in at_once}))
        twice = {name for name in self.repos if self.cloned(name) > max(1, self._clones[name])}
        assert not twice, (twice, self._story(twice))

    def _story(self, names: set[str]) -> tuple[str, list[Any]]:
        """What workers and coordinators say about these."""
        ids = [source["id"] for name, source in self.sources().items() if name in names]
        lines = [line for one in self._joined for line in one.log if any(id in line for id in ids)]
        orders = [one for id in ids for one in reversed(api(self.server, "audit", about=id, limit="100")["items"])]
        return "".join(lines), orders

    def _messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = api(self.server, "topics/skep.changes/messages", offset=str(len(found)), limit="1000")
            if not page["messages"]:
                return found
            found += [dict(one["body"]) for one in page["messages"]]


def refs_at(place: str) -> Refs:
    """Of a folder or URL; empty when there is none."""
    asked = ["git", "ls-remote", "--quiet", "--refs", place, "refs/heads/*", "refs/tags/*"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return {ref: oid for oid, ref in (line.split("\t") for line in told.splitlines())}


def member_of(worker: Member) -> str:
    """Its id."""
    with closing(sqlite3.connect(f"file:{worker.data / 'worker' / 'worker.db'}?mode=ro", uri=True)) as db:
        return str(db.execute("SELECT value FROM meta WHERE name = 'member'").fetchone()[0])


def head_of(folder: Path) -> str:
    asked = ["git", "-C", str(folder), "rev-parse", "--verify", "-q", "refs/heads/main"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def cluster(folder: Path, database: str, **settings: Any) -> Iterator[Cluster]:
    with ExitStack() as stack:
        forge = stack.enter_context(Forge(folder / "forge"))
        yield Cluster(folder, database, forge, stack, **settings)
