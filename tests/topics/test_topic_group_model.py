"""Groups against a model: a partition has one reader at a time, nothing is skipped, nothing comes twice by itself."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.base.errors import Conflict
from skep.processes.engines import find
from skep.topics.api import Commit, Post
from skep.topics.groups import Groups
from tests.topics.room import MEMBER_SECONDS, READER, WRITER, Room, room_on

TOPIC, GROUP = "news", "readers"
names = st.sampled_from(["ann", "bob", "cyd", "dan"])


class Reading(msgspec.Struct):
    """A partition as a member sees it."""

    generation: int
    next: int
    wanted_back: bool = False


class Held(msgspec.Struct):
    """A partition as it truly is."""

    owner: str | None = None
    generation: int = 0
    committed: int = 0
    #: how far anybody was given messages, as far as no crash excuses a repeat
    delivered: int = 0


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.room: Room = self.runner.run(self.open())
        self.seen: dict[str, dict[int, Reading]] = {}
        #: seconds for which somebody could be heard; until when of them each member is in
        self.listened = 0.0
        self.until: dict[str, float] = {}
        self.ends: list[int] = []

    async def open(self) -> Room:
        db = await find("db", "memory:")("memory:", data=self.folder, durability="full")
        return await room_on(db, await find("log", "db:")("db:", db=db), self.folder)

    def teardown(self) -> None:
        try:
            if self.ends:
                self.finish()
        finally:
            self.runner.run(self.room.db.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    @initialize(partitions=st.integers(1, 6))
    def make(self, partitions: int) -> None:
        self.runner.run(self.room.topics.create(WRITER, TOPIC, partitions=partitions))
        self.ends = [0] * partitions
        self.held = [Held() for _ in range(partitions)]

    @rule(partition=st.integers(0, 5), count=st.integers(1, 5))
    def publish(self, partition: int, count: int) -> None:
        partition %= len(self.ends)
        posts = [Post(b"%d" % (self.ends[partition] + n), partition=partition) for n in range(count)]
        self.runner.run(self.room.topics.publish(WRITER, TOPIC, posts))
        self.ends[partition] += count

    def alive(self, member: str) -> bool:
        return self.until.get(member, 0.0) >= self.listened

    @rule(member=names)
    def join(self, member: str) -> None:
        answer = self.runner.run(self.room.groups.join(READER, TOPIC, GROUP, member=member))
        before, self.seen[member] = self.seen.get(member, {}), {}
        self.until[member] = self.listened + MEMBER_SECONDS
        for lease in answer.leases:
            held = self.held[lease.partition]
            assert lease.offset == held.committed
            if (held.owner, held.generation) != (member, lease.generation):
                self.taken(member, held, lease.generation)
            known = before.get(lease.partition)
            going_on = known is not None and known.generation == lease.generation
            place = known.next if known and going_on else lease.offset
            self.seen[member][lease.partition] = Reading(lease.generation, place, lease.partition in answer.give_back)

    def taken(self, member: str, held: Held, generation: int) -> None:
        assert generation > held.generation
        if held.owner is not None:
            assert not self.alive(held.owner), "two read one partition"
            held.delivered = held.committed  # its reader is gone: what it did not commit comes again
        held.owner, held.generation = member, generation

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def read(self, data: st.DataObject, limit: int) -> None:
        member = data.draw(st.sampled_from(sorted(self.seen)))
        for partition, reading in self.seen[member].items():
            held = self.held[partition]
            owns = (held.owner, held.generation) == (member, reading.generation)
            found = self.runner.run(self.room.topics.read(READER, TOPIC, reading.next, limit, partition=partition))
            expected = range(reading.next, min(reading.next + limit, self.ends[partition]))
            assert [message.body for message in found] == [b"%d" % n for n in expected]
            if owns and found:
                assert found[0].offset == held.delivered, "skipped or repeated"
                held.delivered = found[-1].offset + 1
            reading.next += len(found)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), give_back=st.booleans())
    def commit(self, data: st.DataObject, give_back: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.seen)))
        for partition, reading in list(self.seen[member].items()):
            back = give_back and reading.wanted_back
            self.commit_one(member, partition, reading, back)

    def commit_one(self, member: str, partition: int, reading: Reading, back: bool) -> None:
        held = self.held[partition]
        commit = self.room.groups.commit(
            READER, TOPIC, GROUP, member, [Commit(partition, reading.generation, reading.next, back)]
        )
        if (held.owner, held.generation) != (member, reading.generation):
            with pytest.raises(Conflict):
                self.runner.run(commit)
            del self.seen[member][partition]
            return
        self.runner.run(commit)
        self.until[member] = self.listened + MEMBER_SECONDS
        held.committed = reading.next
        if back:
            held.owner = None
            del self.seen[member][partition]

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.seen)))
        self.runner.run(self.room.groups.leave(READER, TOPIC, GROUP, member))
        del self.seen[member]
        self.until.pop(member)
        for held in self.held:
            if held.owner == member:
                held.owner, held.delivered = None, held.committed

    @rule(seconds=st.sampled_from([1.0, 12.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.room.passes(seconds)
        self.listened += seconds

    @rule(seconds=st.sampled_from([12.0, 31.0, 1000.0]), restarted=st.booleans())
    def the_server_stands_still(self, seconds: float, restarted: bool) -> None:
        self.room.clock.time += seconds
        if restarted:
            self.room.groups = Groups(self.room.topics, MEMBER_SECONDS)

    @precondition(lambda self: self.seen)
    @invariant()
    def lag_is_what_is_not_committed(self) -> None:
        lags = self.runner.run(self.room.groups.lag(READER, TOPIC, GROUP))
        assert [lag.lag for lag in lags] == [
            end - held.committed for end, held in zip(self.ends, self.held, strict=True)
        ]

    def finish(self) -> None:
        """Those who stay share everything fairly after a few rounds, and read to the end."""
        self.time_passes(2 * MEMBER_SECONDS)
        members = ["ann", "bob", "eve"]
        for _ in range(3):
            for member in members:
                self.join(member)
                for partition, reading in list(self.seen[member].items()):
                    if reading.wanted_back:
                        self.commit_one(member, partition, reading, True)
        counts = [len(self.seen[member]) for member in members]
        assert sum(counts) == len(self.ends)
        assert max(counts) - min(counts) <= 1
        for member in members:
            for partition, reading in self.seen[member].items():
                found = self.runner.run(self.room.topics.read(READER, TOPIC, reading.next, 10_000, partition=partition))
                reading.next += len(found)
                self.commit_one(member, partition, reading, False)
        assert [held.committed for held in self.held] == self.ends


GroupMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroups = GroupMachine.TestCase
