"""Pushes to upstream repositories, searches, contexts of tasks, and tuples in a space."""

import threading
from pathlib import Path

from tests.chaos.calls import Away, Refused, patiently
from tests.chaos.fleet import Fleet
from tests.chaos.journal import (
    ContextSubmitted,
    Journal,
    Pushed,
    Searched,
    SourceAdded,
    TuplePut,
    TupleTaken,
    Unexpected,
)
from tests.chaos.schedule import COORDINATORS, LEASE, SERVERS
from tests.chaos.topic_loads import Load
from tests.support.forge import Repo

#: repositories that are pushed to at the same time
ACTIVE_REPOSITORIES = 3
#: repositories of a whole run
_MOST_REPOSITORIES = 14
MAIN = "refs/heads/main"
SPACE = "jobs"
#: what all words in upstream files begin with
WORD = "zebra"
_TUPLE_LEASE = 3.0
#: more often than the faults of a run can end a task
_RETRIED: dict[str, object] = {"retries": 100, "lost_worker_retries": 100, "backoff": 0.2}
#: says when it begins and ends. The lock is the kernel's: it is free as soon as its owner is dead.
_SCRIPT = """
exec 9>>"$1/$2.lock"
flock -n 9 || echo "overlap $2 $SKEP_ATTEMPT" >>"$1/effects"
echo "begin $2 $SKEP_ATTEMPT" >>"$1/effects"
sleep "$3"
echo "end $2 $SKEP_ATTEMPT" >>"$1/effects"
[ "$4" != fails ] || [ "$SKEP_ATTEMPT" -gt 1 ]
"""


class Pushing(Load):
    """Commits, branches, tags and rewritten histories. Now and then a new repository takes the place of the oldest one:
    the last push to each must arrive by itself, because no later push repeats it."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, seconds: float, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"pushes {seed}", over, COORDINATORS)
        self._forge = fleet.forge
        self._repositories: dict[str, Repo] = {}
        #: those that are pushed to, the oldest first
        self._active: list[str] = []
        self._replace_seconds = max(4.0, seconds / (_MOST_REPOSITORIES - ACTIVE_REPOSITORIES))
        #: all that were pushed
        self.words: list[str] = []
        self._tags = 0

    def add(self) -> None:
        name = f"r{len(self._repositories)}"
        word = self._word(name)
        self._repositories[name] = repo = self._forge.create(name, {"a.txt": word.encode()})
        self.journal.write(Pushed(self.journal.now(), name, MAIN, repo.refs()[MAIN], word))
        added = patiently(self.caller, self.over, "POST", "sources", {"url": self._forge.url(name)})
        if added is not None:
            self.journal.write(SourceAdded(self.journal.now(), name, added["source"]["id"]))
            self._active.append(name)

    def run(self) -> None:
        replaced = self.journal.now()
        while self.pause(0.1, 0.7):
            act = self.chance.choice([self.commit, self.commit, self.branch, self.branch, self.tag, self.rewrite])
            act(self.chance.choice(self._active))
            if self.journal.now() > replaced + self._replace_seconds:
                replaced = self.journal.now()
                self._active.pop(0)
                self.add()

    def commit(self, name: str, branch: str = "main", parent: str | None = None) -> None:
        word = self._word(name)
        new = self._repositories[name].commit({"a.txt": f"{word} in {branch}\n".encode()}, branch=branch, parent=parent)
        self.journal.write(Pushed(self.journal.now(), name, f"refs/heads/{branch}", new, word))

    def rewrite(self, name: str) -> None:
        self.commit(name, parent="")

    def branch(self, name: str) -> None:
        """A branch moves, or is deleted."""
        branch = self.chance.choice(["side", "topic/one"])
        if f"refs/heads/{branch}" in self._repositories[name].refs() and self.chance.random() < 0.4:
            self._repositories[name].delete_branch(branch)
            self.journal.write(Pushed(self.journal.now(), name, f"refs/heads/{branch}", None))
        else:
            self.commit(name, branch)

    def tag(self, name: str) -> None:
        self._tags += 1
        repo, tag = self._repositories[name], f"v{self._tags}"
        repo.tag(tag, annotated=self.chance.random() < 0.5)
        ref = f"refs/tags/{tag}"
        self.journal.write(Pushed(self.journal.now(), name, ref, repo.refs()[ref]))

    def _word(self, name: str) -> str:
        letters = "".join(chr(ord("a") + int(digit)) for digit in f"{len(self.words):05d}")
        self.words.append(f"{WORD}{letters}{name}")
        return self.words[-1]


class Searching(Load):
    """Searches at all servers for words that were pushed."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, words: list[str], over: threading.Event) -> None:
        super().__init__(fleet, journal, f"searches {seed}", over, SERVERS)
        self._words = words

    def run(self) -> None:
        while self.pause(0.3, 0.8):
            word = self.chance.choice(self._words[-5:])
            server = self.caller.server.member
            try:
                hits = self.caller.get("search", q=word)["hits"]
            except (Away, Refused):
                continue
            sources = tuple(sorted({hit["source"] for hit in hits}))
            self.journal.write(Searched(self.journal.now(), server, word, sources))
            self.caller.turn()


class Submitting(Load):
    """Contexts of tasks: one that the next needs, one that fails at first, one that takes longer than a lease.

    Each third context has one task that may run at most once."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, effects: Path, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"tasks {seed}", over, COORDINATORS)
        self._effects = effects

    def run(self) -> None:
        n = 0
        while self.pause(0.5, 2.0):
            name, once, n = f"x{n}", n % 3 == 2, n + 1
            try:
                context = self.caller.post("contexts", self._once(name) if once else self._context(name))
            except Away:
                continue  # perhaps it is stored, perhaps not: nothing was acknowledged
            except Refused as error:
                self.journal.write(Unexpected(self.journal.now(), f"a context is refused: {error}"))
                continue
            self.journal.write(ContextSubmitted(self.journal.now(), context["id"], name, once))
            self.caller.turn()

    def _context(self, name: str) -> dict[str, object]:
        tasks = [
            self._task(name, "first", 0.1),
            {**self._task(name, "second", 0.1), "needs": [{"task": "first"}]},
            self._task(name, "fails", 0.1, "fails"),
            self._task(name, "long", 3 * LEASE),
        ]
        return {"name": name, "tasks": [task | _RETRIED for task in tasks]}

    def _once(self, name: str) -> dict[str, object]:
        return {"name": name, "tasks": [self._task(name, "once", LEASE) | {"at_most_once": True}]}

    def _task(self, context: str, name: str, seconds: float, how: str = "") -> dict[str, object]:
        argv = ["sh", "-c", _SCRIPT, "sh", str(self._effects), f"{context}.{name}", str(seconds), how]
        return {"name": name, "argv": argv}


class Putting(Load):
    """Puts numbered tuples into a space, each until it is acknowledged."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"puts {seed}", over, COORDINATORS)

    def run(self) -> None:
        n = 0
        while self.pause(0.05, 0.3):
            order = {"fields": ["job", n], "id": f"job-{n}"}
            turned = self.caller.turned
            if patiently(self.caller, self.over, "POST", f"spaces/{SPACE}/put", order) is None:
                return
            self.journal.write(TuplePut(self.journal.now(), n, repeated=self.caller.turned != turned))
            n += 1


class Taking(Load):
    """Takes tuples, and says that they are done."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"takes {seed}", over, COORDINATORS)

    def run(self) -> None:
        turn = 0
        while self.pause(0.0, 0.2):
            turn += 1
            try:
                self._take(f"ticket-{turn}")
            except (Away, Refused):
                continue

    def _take(self, ticket: str) -> None:
        since = self.journal.now()
        wanted = {"template": ["job", {"type": "int"}], "wait": 1.0, "lease": _TUPLE_LEASE, "ticket": ticket}
        found = self.caller.post(f"spaces/{SPACE}/get", wanted)["taken"]
        if not found:
            return
        at, n, ended = self.journal.now(), found["fields"][1], None
        try:
            self.caller.post(f"spaces/{SPACE}/acknowledge", {"seq": found["seq"], "ticket": ticket})
            ended = self.journal.now()
        finally:
            self.journal.write(TupleTaken(since, at, n, ended))
