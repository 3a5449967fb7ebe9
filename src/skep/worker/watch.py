"""A held source and when it is looked at: the poller's working memory of it."""

from dataclasses import dataclass

from skep.model.source import Held
from skep.schedule.hosts import REPLICAS, host_of
from skep.schedule.plan import Plan


@dataclass(slots=True, eq=False)
class Watch(Plan):
    #: without `told`, which stays in the file until a fetch needs it
    held: Held
    #: fetch-nows that no outcome has answered yet
    asks: int = 0
    #: a fetch was begun and not told: the mirror may be ahead of `told`
    fetching: bool = False
    #: what an earlier process left behind was cleared away
    mended: bool = False
    host: str = ""

    def __post_init__(self) -> None:
        self.host = host_of(self.held.url) if self.held.primary else REPLICAS

    @property
    def source(self) -> str:
        return self.held.source
