"""Upstreams and mirrors in memory, with places where a process can be made to hang: then it is killed there."""

import asyncio
from collections.abc import Mapping, Sequence

from skep.sources.model import Failure, Held, Key
from skep.sources.source_type import Ask, Look, Moved, Report, Same


class MemoryKind:
    """Outlives the poller, as upstreams and mirrors do."""

    def __init__(self) -> None:
        self.upstream: dict[str, dict[str, str]] = {}
        self.mirror: dict[str, dict[str, str]] = {}
        #: every state the mirror of a source was in
        self.history: dict[str, list[dict[str, str]]] = {}
        self.failing: dict[str, Failure] = {}
        self.looks: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.most = 0
        #: "before" or "after" the mirror is changed by a fetch
        self.hang = ""
        self.hung = asyncio.Event()
        #: sources whose fetches take until `released`
        self.slow: set[str] = set()
        self.released = asyncio.Event()

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        assert not source.told
        name = source.source
        self.looks[name] = self.looks.get(name, 0) + 1
        self.running[name] = self.running.get(name, 0) + 1
        assert self.running[name] == 1
        self.most = max(self.most, sum(self.running.values()))
        await asyncio.sleep(0)
        self.running[name] -= 1
        if name in self.failing:
            return self.failing[name]
        versions = self.upstream[name]
        seen = repr(sorted(versions.items()))
        return Same() if seen == source.seen else Moved(seen, dict(versions))

    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        await self._maybe_hang("before")
        if source.source in self.slow:
            await self.released.wait()
        versions = dict(self.upstream[source.source])
        if self.mirror.get(source.source) != versions:
            self.mirror[source.source] = versions
            self.history.setdefault(source.source, []).append(versions)
        await self._maybe_hang("after")
        return versions

    def heavy(self, source: Held) -> bool:
        return source.source in self.slow

    def more(self, source: Held) -> bool:
        return self.heavy(source)

    def changed(self, source: Held) -> bool:
        return False

    async def versions(self, source: Held) -> Mapping[str, str]:
        return self.mirror.get(source.source, {})

    async def mend(self, source: Held) -> Failure | None:
        return None

    async def check(self, source: Held) -> Failure | None:
        return None

    async def remove(self, source: Held) -> None:
        self.mirror.pop(source.source, None)

    def connect(self, ask: Ask) -> None: ...

    def unlock(self, keys: Sequence[Key]) -> None: ...

    async def close(self) -> None: ...

    async def _maybe_hang(self, place: str) -> None:
        if self.hang == place:
            self.hung.set()
            await asyncio.Event().wait()
