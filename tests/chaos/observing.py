"""Reads the final state of the fleet: through its API, and from the folders of its workers."""

import json
import re
import sqlite3
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.chaos.calls import Caller, Refused
from tests.chaos.fleet import Fleet
from tests.chaos.journal import ContextSubmitted, Entry, of
from tests.chaos.observation import (
    Change,
    ContextState,
    Effect,
    MirrorState,
    Observation,
    Refs,
    StoredMessage,
    TaskState,
)
from tests.chaos.other_loads import SPACE, WORD
from tests.chaos.schedule import COORDINATORS, SERVERS, WORKERS
from tests.chaos.topic_loads import GROUP, PARTITIONS, TOPIC
from tests.cluster.cluster import refs_at

_PAGE = 1000
_WORDS = re.compile(rf"{WORD}[a-j]+r[0-9]+")
#: an answer is waited for as long as a busy machine may take
_SECONDS = 60.0


class Observer:
    """Remembers what cannot change any more: contexts that have ended, and words that are found as they should be."""

    def __init__(self, fleet: Fleet, effects: Path) -> None:
        self._fleet = fleet
        self._effects = effects
        self._callers = {name: Caller([fleet.processes[name]], seconds=_SECONDS) for name in SERVERS}
        self._ended: dict[str, ContextState] = {}

    def observe(self, entries: list[Entry], *, fsck: bool = False) -> Observation:
        self.close()
        caller = self._callers[COORDINATORS[0]]
        sources = self._sources(caller)
        lag = caller.get(f"topics/{TOPIC}/groups/{GROUP}/lag")["partitions"]
        jobs = caller.post(f"spaces/{SPACE}/query_all", {"template": ["job", {"type": "int"}]})
        return Observation(
            messages=[message for partition in range(PARTITIONS) for message in self._messages(caller, partition)],
            lag=sum(one["lag"] for one in lag),
            upstream={name: self._upstream(name) for name in sources},
            sources=sources,
            changes=[_change(one) for one in _topic(caller, "skep.changes")],
            listed={id: self._listed(caller, id) for id in sources.values()},
            mirrors=self._mirrors(sources.values(), fsck=fsck),
            holders=self._holders(),
            served={server: self._served(server, sources.values()) for server in SERVERS},
            found={server: self._found(server) for server in SERVERS},
            contexts=self._contexts(caller, [one.id for one in of(ContextSubmitted, entries)]),
            ended=_ended(_topic(caller, "skep.tasks")),
            effects=self._written(),
            tuples=[one["fields"][1] for one in jobs["tuples"]],
        )

    def close(self) -> None:
        for caller in self._callers.values():
            caller.close()

    def _sources(self, caller: Caller) -> dict[str, str]:
        found = caller.get("sources", limit=_PAGE)["items"]
        return {one["url"].rpartition("/")[2]: one["id"] for one in found}

    def _messages(self, caller: Caller, partition: int) -> Iterable[StoredMessage]:
        for one in _topic(caller, TOPIC, partition):
            body = one["body"]
            yield StoredMessage(partition, one["offset"], body["producer"], body["n"], body["key"])

    def _upstream(self, name: str) -> Refs:
        return refs_at(str(self._fleet.forge.folder / f"{name}.git"))

    def _listed(self, caller: Caller, source: str) -> list[str]:
        return _pages(lambda page: caller.get(f"sources/{source}/changes", limit=_PAGE, page=page))

    def _mirrors(self, sources: Iterable[str], *, fsck: bool) -> dict[str, list[MirrorState]]:
        found: dict[str, list[MirrorState]] = defaultdict(list)
        for source in sources:
            for worker in WORKERS:
                folder = self._fleet.processes[worker].data / "mirrors"
                for mirror in folder.glob(f"*/*/{source}.git"):
                    damage = _fsck(mirror) if fsck else ""
                    found[source].append(MirrorState(worker, refs_at(str(mirror)), damage))
        return found

    def _holders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for worker in WORKERS:
            file = self._fleet.processes[worker].data / "worker" / "worker.db"
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=_SECONDS)) as db:
                for row in db.execute("SELECT source FROM held WHERE released = 0 AND replica = 0"):
                    found[row[0]].append(worker)
        return found

    def _served(self, server: str, sources: Iterable[str]) -> dict[str, Refs]:
        return {id: self._callers[server].refs(id) for id in sources}

    def _found(self, server: str) -> dict[str, list[str]]:
        """All words that are in the index of a server: each repository has one, in one file."""
        found: dict[str, set[str]] = defaultdict(set)
        for hit in self._callers[server].get("search", q=WORD, lines=_PAGE)["hits"]:
            for word in _WORDS.findall(json.dumps(hit["lines"])):
                found[word].add(hit["source"])
        return {word: sorted(sources) for word, sources in found.items()}

    def _contexts(self, caller: Caller, ids: list[str]) -> dict[str, ContextState]:
        """Without those that do not exist."""
        found: dict[str, ContextState] = {}
        for id in ids:
            try:
                found[id] = self._context(caller, id)
            except Refused as error:
                if error.status != 404:
                    raise
        return found

    def _context(self, caller: Caller, id: str) -> ContextState:
        if id not in self._ended:
            view = caller.get(f"contexts/{id}")
            context = view["context"]
            tasks = tuple(self._task(caller, one) for one in view["tasks"])
            state = ContextState(id, context["name"], context["state"], tasks)
            if state.state == "RUNNING":
                return state
            self._ended[id] = state
        return self._ended[id]

    def _task(self, caller: Caller, task: dict[str, Any]) -> TaskState:
        moves = caller.get(f"tasks/{task['id']}")["moves"]
        return TaskState(
            task["id"], task["name"], task["state"], tuple((one["state"], one["attempt"]) for one in moves)
        )

    def _written(self) -> list[Effect]:
        file = self._effects / "effects"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [Effect(what, task, int(attempt)) for what, task, attempt in lines]


def _topic(caller: Caller, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        query = {"partition": partition, "offset": len(found), "max": _PAGE}
        page = caller.get(f"topics/{topic}/messages", **query)["messages"]
        if not page:
            return found
        found += page


def _change(message: dict[str, Any]) -> Change:
    body = message["body"]
    named = (body[name] for name in ("id", "source", "entry", "seq", "old", "new"))
    return Change(message["offset"], *named)


def _pages(ask: Callable[[str], dict[str, Any]]) -> list[str]:
    ids: list[str] = []
    page = ""
    while True:
        answer = ask(page)
        ids += [one["id"] for one in answer["items"]]
        page = answer["next_page"]
        if not page:
            return ids


def _ended(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        body = message["body"]
        found[body[body["what"]]].append(body["state"])
    return found


def _fsck(mirror: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(mirror), "fsck", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).strip() if done.returncode else ""
