"""Mirrors of released sources are removed once nobody reads them, however often that has to be tried."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from skep.sources.base import Kind
from skep.worker.giving import Giving
from skep.worker.store import Store
from skep.worker.watch import Watch

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 60.0


class Removal:
    def __init__(self, store: Store, kinds: Mapping[str, Kind], done: Callable[[str], None]) -> None:
        self._store = store
        self._kinds = kinds
        self._done = done
        #: released, the mirror still there
        self._leaving: dict[str, Watch] = {}
        self._removing: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        #: to whom mirrors are copied; git takes the rest of one that is being removed for all there is
        self.giving: Giving | None = None

    def __contains__(self, source: str) -> bool:
        return source in self._leaving

    async def load(self) -> None:
        for watch in await self._store.released():
            self._leaving[watch.source] = watch

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        for source in self._leaving:
            self.begin(source)

    def stop(self) -> None:
        self._group = None

    def put(self, watch: Watch) -> None:
        """It is to go; `begin` once nobody has it in hand."""
        self._leaving[watch.source] = watch

    def take_back(self, source: str) -> None:
        self._leaving.pop(source, None)

    def running(self, source: str) -> bool:
        return source in self._removing

    def begin(self, source: str) -> None:
        if self._group is not None:
            self._removing.add(source)
            self._group.create_task(self._remove(source))

    async def _remove(self, source: str) -> None:
        while (watch := self._leaving.get(source)) is not None:
            try:
                if self.giving is not None:
                    await self.giving.finish(source, lambda: source in self._leaving)
                if self._leaving.get(source) is not watch:
                    continue
                await self._kinds[watch.held.kind].remove(watch.held)
                await self._store.forget(source)
                self._leaving.pop(source, None)
            except Exception:
                log.exception("cannot remove the mirror of %s yet", watch.held.url)
                await asyncio.sleep(_AGAIN_SECONDS)
        self._removing.discard(source)
        self._done(source)
