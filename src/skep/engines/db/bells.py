"""Bells inside one process. Everything here runs on the event loop's thread."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from skep.engines.db.base import Bell


class _Bell:
    def __init__(self) -> None:
        self._rang = asyncio.Event()

    def ring(self) -> None:
        self._rang.set()

    async def wait(self, timeout: float) -> bool:
        if not self._rang.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._rang.wait()
            except TimeoutError:
                return False
        self._rang.clear()
        return True


class Bells:
    def __init__(self) -> None:
        self._hung: dict[str, set[_Bell]] = {}

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Bell]:
        bell = _Bell()
        self._hung.setdefault(channel, set()).add(bell)
        try:
            yield bell
        finally:
            others = self._hung[channel]
            others.discard(bell)
            if not others:
                del self._hung[channel]

    def ring(self, channels: Iterable[str]) -> None:
        for channel in channels:
            for bell in self._hung.get(channel, ()):
                bell.ring()

    def ring_all(self) -> None:
        """When something may have been missed."""
        self.ring(list(self._hung))
