"""Producers and consumers over HTTP that live through the deaths of servers and remember what they were told."""

import http.client
import json
import random
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from tests.house.running import RunningSkep

PARTITIONS = 4
GROUP = "crowd"
#: what a client sees of a server that was killed, that is not up yet, or whose log is away
AWAY = (OSError, http.client.HTTPException)
#: a life of a consumer ends without a word after at most so many commits
LONGEST_LIFE = 20

Place = tuple[int, int]


class Out(Exception):
    """The member was silent for too long: its partitions are given to others."""


class Died(Exception):
    """A consumer is gone without leaving its group."""


class Story:
    """What all clients saw, to be compared with what is stored in the end."""

    def __init__(self, skep: RunningSkep, topic: str) -> None:
        self.skep = skep
        self.topic = topic
        self.produced = threading.Event()
        self.drained = threading.Event()
        #: deaths of a server, members that died, and those that a stall kept silent for longer than their lease: they
        #: excuse a message that comes again
        self.crashes = 0
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.acknowledged: dict[Place, dict[str, Any]] = {}
        #: place, body, crashes before it was asked for, and who asked
        self.delivered: list[tuple[Place, dict[str, Any], int, str]] = []


class Wire:
    """One connection that is made anew, perhaps to another port, after each failure."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, verb: str, path: str, body: Any = None) -> Any:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                urlsplit(self._story.skep.url).netloc or "127.0.0.1:9", timeout=30
            )
        headers = {"Authorization": f"Bearer {self._story.skep.token}", "Content-Type": "application/json"}
        try:
            self._connection.request(verb, f"/api/v1/topics/{self._story.topic}{path}", json.dumps(body), headers)
            answer = self._connection.getresponse()
            said = answer.read()
        except AWAY:
            self.close()
            time.sleep(0.05)
            raise
        if answer.status == 503 and self._story.skep.settings["log"] != "db:":
            time.sleep(0.05)
            raise ConnectionError(said)
        if answer.status == 409:
            raise Out(said)
        assert answer.status < 300, (verb, path, answer.status, said)
        return json.loads(said) if said else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def produce(story: Story, name: str, seed: int, *, counted: bool) -> int:
    """`counted`: repeats until it is answered, with the same sequence. Else what was not answered is given up."""
    chance, wire, n = random.Random(seed), Wire(story), 0
    partition = seed % PARTITIONS
    while not story.produced.is_set():
        bodies = [{"by": name, "n": n + more} for more in range(chance.choice([1, 1, 1, 5]))]
        order: dict[str, Any] = {"messages": [{"body": body, "partition": partition} for body in bodies]}
        if counted:
            order |= {"producer": name, "sequence": n}
        while True:
            try:
                posted = wire.ask("POST", "/messages", order)["posted"]
            except AWAY:
                if counted:
                    continue
                break
            for place, body in zip(posted, bodies, strict=True):
                story.acknowledged[place["partition"], place["offset"]] = body
            break
        n += len(bodies)
    wire.close()
    return n


class Consumer:
    """A member of the group that goes on where it was while its lease is the same."""

    def __init__(self, story: Story, seed: int) -> None:
        self._story = story
        self._chance = random.Random(seed)
        self._wire = Wire(story)
        self._seed = seed
        self._lives = 0
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._member = f"m{self._seed}-{self._lives}"
        self._commits_left = self._chance.randint(1, LONGEST_LIFE)
        #: until when others keep off what is leased to it
        self._safe_until = 0.0
        #: partition -> generation of its lease and next offset
        self._reading: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        while not self._story.drained.is_set():
            try:
                self._turn()
                if self._chance.random() < 0.02:
                    self._ask("leave")
                    self._begin()
            except AWAY:
                self._note_silence()
            except Died:
                self._story.dead.add(self._member)
                self._begin()
            except Out:
                self._note_silence()
                self._begin()
        self._wire.close()

    def _note_silence(self) -> None:
        if 0 < self._safe_until < time.monotonic():
            self._story.silent.add(self._member)

    def _turn(self) -> None:
        began = time.monotonic()
        told = self._ask("join")
        self._safe_until = began + told["expires_in"]
        leases = {lease["partition"]: lease for lease in told["leases"]}
        self._reading = {n: at for n, at in self._reading.items() if n in leases and at[0] == leases[n]["generation"]}
        for n, lease in leases.items():
            self._reading.setdefault(n, (lease["generation"], lease["offset"]))
        for n in list(self._reading):
            if n not in told["give_back"]:
                self._read(n)
            self._commit(n, n in told["give_back"])

    def _read(self, partition: int) -> None:
        generation, offset = self._reading[partition]
        crashes = self._story.crashes
        found = self._wire.ask("GET", f"/messages?partition={partition}&offset={offset}&max=50&wait=0.05")["messages"]
        if time.monotonic() > self._safe_until:
            raise Out
        for message in found:
            assert message["offset"] == offset, "skipped or out of order"
            self._story.delivered.append(((partition, offset), message["body"], crashes, self._member))
            offset += 1
        self._reading[partition] = (generation, offset)

    def _commit(self, partition: int, give_back: bool) -> None:
        generation, offset = self._reading[partition]
        self._commits_left -= 1
        if not self._commits_left and not self._story.produced.is_set():
            raise Died
        self._ask(
            "commit",
            commits=[{"partition": partition, "generation": generation, "offset": offset, "give_back": give_back}],
        )
        if give_back:
            del self._reading[partition]

    def _ask(self, verb: str, **more: Any) -> Any:
        return self._wire.ask("POST", f"/groups/{GROUP}/{verb}", {"member": self._member, **more})
