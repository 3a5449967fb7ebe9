"""The room of topics on its own, over a database and a log."""

from math import ceil
from pathlib import Path

import msgspec

from skep.access.tokens import Access
from skep.base.caller import Caller
from skep.storage.database import Database
from skep.storage.topic_log import Log
from skep.topics.groups import Groups
from skep.topics.legacy_queue import Queue
from skep.topics.service import Topics
from tests.rooms.house import MovedClock

LIMIT = 1000
MEMBER_SECONDS = 30.0
LISTENS = MEMBER_SECONDS / 10
WRITER = Caller("writer", frozenset({"read", "write"}))
READER = Caller("reader", frozenset({"read"}))
ANYBODY = Caller("", frozenset(), known=False)


class Room(msgspec.Struct):
    db: Database
    log: Log
    clock: MovedClock
    topics: Topics
    groups: Groups
    queue: Queue

    def passes(self, seconds: float) -> None:
        """Time, while the server listens."""
        for _ in range(steps := ceil(seconds / LISTENS)):
            self.clock.time += seconds / steps
            self.groups.listen()


async def room_on(db: Database, log: Log, data: Path) -> Room:
    clock = MovedClock()
    topics = Topics(db, log, clock, LIMIT)
    await Access(db, clock, data, open_read=True).start()
    await topics.start()
    return Room(db, log, clock, topics, Groups(topics, MEMBER_SECONDS), Queue(topics))
