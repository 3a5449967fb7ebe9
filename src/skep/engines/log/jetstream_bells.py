"""Rings after messages are stored, not when they are published: a reader that is woken finds them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from nats.aio.client import Client

from skep.engines.log.jetstream_wire import BROKEN
from skep.errors import Unavailable

#: seconds between rings: many messages share one
_PAUSE = 0.002


class Ringer:
    def __init__(self) -> None:
        self._due: set[str] = set()
        self._any = asyncio.Event()

    def ring(self, bell: str) -> None:
        self._due.add(bell)
        self._any.set()

    async def run(self, connected: Callable[[], Awaitable[Client]]) -> None:
        while True:
            await self._any.wait()
            # what cannot be told now is due until the server is back
            with contextlib.suppress(*BROKEN, Unavailable):
                client = await connected()
                self._any.clear()
                while self._due:
                    await self._send(client, self._due.pop())
            await asyncio.sleep(_PAUSE)

    async def _send(self, client: Client, bell: str) -> None:
        try:
            await client.publish(bell)
        except BROKEN:
            self.ring(bell)
            raise
