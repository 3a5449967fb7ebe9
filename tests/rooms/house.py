"""The rooms of a serving process over each database, without link and worker."""

import msgspec

from skep.access.tokens import Access
from skep.fleet.members import Fleet
from skep.sources.report_handler import Intake
from skep.sources.service import Sources
from skep.storage.database import Database
from skep.storage.topic_log import TxLog
from skep.topics.service import Topics

WORKER_TOKEN = "w" * 64


class MovedClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5


class House(msgspec.Struct):
    db: Database
    clock: MovedClock
    log: TxLog
    access: Access
    fleet: Fleet
    topics: Topics
    sources: Sources
    intake: Intake
