"""Producers and consumers of a topic, and readers of `skep.changes`."""

import random
import threading
from typing import Any

from tests.chaos.calls import Away, Caller, Refused, patiently
from tests.chaos.fleet import Fleet
from tests.chaos.journal import ChangeRead, Committed, Handled, Journal, Published, Unexpected
from tests.chaos.schedule import COORDINATORS, GROUP_LEASE, SERVERS

TOPIC, GROUP, PARTITIONS = "orders", "readers", 3
PRODUCERS, CONSUMERS = 3, 2
KEYS = 4
#: how often a consumer stalls between reading and committing, for longer than its lease
STALL_CHANCE, STALL_SECONDS = 0.015, GROUP_LEASE + 2.0


class Load:
    """A client of the fleet that runs in a thread of its own."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: str, over: threading.Event, servers: tuple[str, ...]):
        self.journal = journal
        self.chance = random.Random(seed)
        self.over = over
        self.caller = Caller([fleet.processes[name] for name in servers], self.chance.randrange(len(servers)))

    def pause(self, least: float, most: float) -> bool:
        """False when the run is over."""
        return not self.over.wait(self.chance.uniform(least, most))

    def run(self) -> None:
        raise NotImplementedError


class Producing(Load):
    """Repeats a batch, with the same sequence number and at either coordinator, until it is acknowledged."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, n: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"producer {seed} {n}", over, COORDINATORS)
        self._name = f"p{n}"

    def run(self) -> None:
        n = 0
        while self.pause(0.0, 0.05):
            keys = [f"{self._name}-{self.chance.randrange(KEYS)}" for _ in range(self.chance.choice([1, 1, 3, 8]))]
            if self.chance.random() < 0.2:
                self.caller.turn()
            posted = patiently(self.caller, self.over, "POST", f"topics/{TOPIC}/messages", self._order(keys, n))
            if posted is None:
                return
            for key, place in zip(keys, posted["posted"], strict=True):
                at, partition, offset = self.journal.now(), place["partition"], place["offset"]
                self.journal.write(Published(at, self._name, n, key, partition, offset))
                n += 1

    def _order(self, keys: list[str], n: int) -> dict[str, object]:
        bodies = [{"producer": self._name, "n": n + more, "key": key} for more, key in enumerate(keys)]
        messages = [{"body": body, "key": body["key"]} for body in bodies]
        return {"messages": messages, "producer": self._name, "sequence": n}


class Consuming(Load):
    """A member of the group that reads the partitions that it leases and commits their offsets.

    From time to time it leaves silently. From time to time it stalls before a commit until its lease has expired and
    the other member has read on: the server must then refuse the late commit.
    """

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, n: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"consumer {seed} {n}", over, COORDINATORS)
        self._n, self._lives = n, 0
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._member = f"m{self._n}-{self._lives}"
        #: partition -> generation of the lease, and next offset
        self._reading: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        while self.pause(0.05, 0.3):
            try:
                self._turn()
                if self.chance.random() < 0.01:
                    self._begin()
            except Away:
                continue
            except Refused as error:
                if error.status != 409:
                    self.journal.write(Unexpected(self.journal.now(), f"{self._member}: {error}"))
                self._begin()

    def _turn(self) -> None:
        joined = self._post("join", {"member": self._member})
        leases = {one["partition"]: one for one in joined["leases"]}
        kept = {n: at for n, at in self._reading.items() if n in leases and at[0] == leases[n]["generation"]}
        self._reading = {n: (one["generation"], one["offset"]) for n, one in leases.items()} | kept
        for partition in list(self._reading):
            back = partition in joined["give_back"]
            if not back:
                self._read(partition)
            if self.chance.random() < STALL_CHANCE:
                self.over.wait(STALL_SECONDS)
            self._commit(partition, back)
        if self.chance.random() < 0.2:
            self.caller.turn()

    def _read(self, partition: int) -> None:
        generation, offset = self._reading[partition]
        found = self.caller.get(f"topics/{TOPIC}/messages", partition=partition, offset=offset, max=200)
        for message in found["messages"]:
            body, at = message["body"], self.journal.now()
            entry = Handled(at, self._member, generation, partition, message["offset"], body["producer"], body["n"])
            self.journal.write(entry)
            offset = message["offset"] + 1
        self._reading[partition] = (generation, offset)

    def _commit(self, partition: int, back: bool) -> None:
        generation, offset = self._reading[partition]
        since = self.journal.now()
        place = {"partition": partition, "generation": generation, "offset": offset, "give_back": back}
        self._post("commit", {"member": self._member, "commits": [place]})
        self.journal.write(Committed(since, self.journal.now(), partition, offset))
        if back:
            del self._reading[partition]

    def _post(self, verb: str, body: object) -> Any:
        return self.caller.post(f"topics/{TOPIC}/groups/{GROUP}/{verb}", body)


class PlaceWatching(Load):
    """Reads how far the group is, at all servers."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"places {seed}", over, SERVERS)

    def run(self) -> None:
        while self.pause(0.1, 0.4):
            since = self.journal.now()
            try:
                partitions = self.caller.get(f"topics/{TOPIC}/groups/{GROUP}/lag")["partitions"]
            except (Away, Refused):
                continue
            at = self.journal.now()
            for one in partitions:
                self.journal.write(Committed(since, at, one["partition"], one["offset"], seen=True))
            self.caller.turn()


class ChangeReading(Load):
    """Follows `skep.changes`, at all servers."""

    def __init__(self, fleet: Fleet, journal: Journal, seed: int, over: threading.Event) -> None:
        super().__init__(fleet, journal, f"changes {seed}", over, SERVERS)

    def run(self) -> None:
        offset = 0
        while self.pause(0.1, 0.4):
            try:
                found = self.caller.get("topics/skep.changes/messages", offset=offset, max=500)["messages"]
            except (Away, Refused):
                continue
            for message in found:
                self.journal.write(ChangeRead(self.journal.now(), message["offset"], message["body"]["id"]))
                offset = message["offset"] + 1
            self.caller.turn()
