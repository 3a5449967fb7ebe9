"""The watches that are due soon, in memory. The others stay in the worker's file, where any number costs nothing."""

import math
from collections.abc import Callable, Iterator

from skep.worker.store import Place, Store
from skep.worker.watch import Watch

#: so many are in memory, and more only while they are due
KEEP = 20_000
_AHEAD_SECONDS = 60.0


class Watches:
    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self._store = store
        self._keep = keep
        self._page = max(1, keep // 4)
        self._near: dict[str, Watch] = {}
        #: whoever comes before it, in the order of next looks, is in memory
        self._horizon: Place = (-1.0, "")
        #: rises when a page that is being read may be wrong
        self._version = 0
        #: rescheduled since the last `tidy`
        self._moved: set[str] = set()

    def __contains__(self, source: str) -> bool:
        return source in self._near

    def __iter__(self) -> Iterator[Watch]:
        return iter(self._near.values())

    def get(self, source: str) -> Watch | None:
        return self._near.get(source)

    def put(self, watch: Watch) -> None:
        self._near[watch.source] = watch

    def offer(self, watch: Watch) -> bool:
        """Put it, unless there are too many already: then it is read when it is its turn."""
        if watch.source in self._near or len(self._near) < 2 * self._keep:
            self.put(watch)
            return True
        self._version += 1
        self._horizon = min(self._horizon, (watch.next_look, ""))
        return False

    def pop(self, source: str) -> Watch | None:
        self._version += 1
        return self._near.pop(source, None)

    def moved(self, source: str) -> None:
        self._moved.add(source)

    async def tidy(self, let_go: Callable[[str], bool]) -> None:
        """Write what moved, then forget who is not due for long. `let_go` says no to one that is in hand."""
        moved, self._moved = self._moved, set()
        try:
            await self._store.flush()
        except BaseException:
            self._moved |= moved
            raise
        for source in moved - self._moved:
            watch = self._near.get(source)
            if watch is None or len(self._near) <= self._keep or (watch.next_look, source) <= self._horizon:
                continue
            if not watch.asks and let_go(source):
                del self._near[source]

    async def more(self, now: float) -> list[Watch]:
        """Those that come next, while there is room or they are due."""
        fresh: list[Watch] = []
        while self._horizon[0] < math.inf and (len(self._near) < self._keep or self._horizon[0] < now + _AHEAD_SECONDS):
            version = self._version
            page = await self._store.next(self._horizon, self._page)
            if version == self._version:
                fresh += self._take(page)
        return fresh

    def _take(self, page: list[Watch]) -> Iterator[Watch]:
        last = page[-1] if len(page) == self._page else None
        self._horizon = (last.next_look, last.source) if last else (math.inf, "")
        for watch in page:
            if watch.source not in self._near:
                self.put(watch)
                yield watch
