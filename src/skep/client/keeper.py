"""Keeps a consumer in its group: comes back in time, tells how far it is, takes and gives back partitions."""

import contextlib
import threading
import time
from collections.abc import Iterable

from skep.client.patience import Patience
from skep.client.readings import Reading, Readings
from skep.client.topics import Group, Topics
from skep.errors import Conflict, SkepError, Unavailable
from skep.model.ids import new_id
from skep.model.topic import Commit, Membership


class Keeper:
    def __init__(
        self, topics: Topics, names: Iterable[str], group: str, start: str, readings: Readings, every: float
    ) -> None:
        self.member = new_id("mem", time.time())
        self._groups = {name: topics.group(name, group) for name in names}
        self._start = start
        self._readings = readings
        self._every = every
        #: one request of this member at a time, so that an answer is never older than what we know
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skep-keeper", daemon=True)

    def start(self) -> None:
        self.beat()
        self._thread.start()

    def wake(self) -> None:
        """Something was handled."""
        self._wake.set()

    def beat(self) -> None:
        begun = until = time.monotonic()
        for topic, group in self._groups.items():
            with self._turn:
                membership = group.join(self.member, start=self._start)
                self._apply(topic, membership)
            self._every = min(self._every, membership.expires_in / 3)
            until = begun + membership.expires_in
        with self._readings.changed:
            self._readings.until = until
            self._readings.changed.notify_all()

    def commit(self) -> None:
        """Everything that is done; and gives back what is waited for and in nobody's hands. Conflict when something
        of it is another member's by now."""
        for topic, group in self._groups.items():
            with self._turn:
                self._commit(topic, group)

    def leave(self) -> None:
        self._leaving.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with contextlib.suppress(Conflict):
            self.commit()
        for group in self._groups.values():
            group.leave(self.member)

    def _apply(self, topic: str, membership: Membership) -> None:
        leases = {lease.partition: lease for lease in membership.leases}
        with self._readings.changed:
            for reading in self._of(topic):
                lease = leases.get(reading.partition)
                if lease is None or lease.generation != reading.generation:
                    self._readings.drop(reading)
                else:
                    del leases[reading.partition]
                    self._readings.leave(reading, reading.partition in membership.give_back)
            for lease in leases.values():
                reading = Reading(topic, lease.partition, lease.offset, lease.generation)
                # taken in the same answer that asks for it: whoever waits gets it when we come back
                reading.leaving = lease.partition in membership.give_back
                self._readings.add(reading)

    def _commit(self, topic: str, group: Group) -> None:
        with self._readings.changed:
            moved = {
                reading: Commit(reading.partition, reading.generation, reading.done, reading.leaving and reading.idle)
                for reading in self._of(topic)
                if reading.done > reading.committed or (reading.leaving and reading.idle)
            }
        if not moved:
            return
        try:
            group.commit(self.member, list(moved.values()))
        except Conflict:
            # joining tells which; the rest is told next time
            self._apply(topic, group.join(self.member, start=self._start))
            self._wake.set()
            raise
        with self._readings.changed:
            for reading, commit in moved.items():
                reading.committed = commit.offset
                if commit.give_back:
                    self._readings.drop(reading)

    def _of(self, topic: str) -> list[Reading]:
        return [reading for reading in self._readings.all.values() if reading.topic == topic]

    def _run(self) -> None:
        patience = Patience(None)
        due = time.monotonic() + self._every
        while not self._leaving.is_set():
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            try:
                if time.monotonic() >= due:
                    self.beat()
                    due = time.monotonic() + self._every
                self.commit()
                patience.restart()
            except Unavailable as error:
                self._leaving.wait(patience.pause(error))
                self._wake.set()
            except Conflict:
                continue
            except SkepError as error:
                self._readings.fail(error)
                return
