"""Bells across processes: one connection listens for all channels, and comes back by itself.

All channels share one PostgreSQL channel and travel as its payload, because channel names are cut at 63 bytes there.
Bells of the process that rings are rung directly; what it hears of itself is marked with its own tag, and passed over.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from skep.engines.db.base import Bell
from skep.engines.db.bells import Bells
from skep.engines.db.postgres_errors import CAUSES

CHANNEL = "skep"
RECONNECT_MAX = 5.0


class Listener:
    def __init__(self, connect: Callable[[], Awaitable[Any]], bells: Bells) -> None:
        self._connect = connect
        self._bells = bells
        self._tag = secrets.token_hex(6)
        self._task: asyncio.Task[None] | None = None
        #: set once the first attempt to connect has ended, well or badly
        self._tried = asyncio.Event()

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Bell]:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="listens to PostgreSQL")
        # hung before the connection listens: if it is down, all bells ring when it is back
        async with self._bells.listen(channel) as bell:
            await self._tried.wait()
            yield bell

    def notify(self, channels: Iterable[str]) -> str:
        """A statement without parameters, so that it can travel with a COMMIT; then `ring`."""
        quoted = (channel.replace("\\", "\\\\").replace("'", "''") for channel in channels)
        return "".join(f"SELECT pg_notify('{CHANNEL}', E'{self._tag}{channel}'); " for channel in quoted)

    def ring(self, channels: Iterable[str]) -> None:
        """The bells of this process."""
        self._bells.ring(channels)

    def _heard(self, payload: str) -> None:
        if not payload.startswith(self._tag):
            self._bells.ring((payload[len(self._tag) :],))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                connection = await self._connect()
            except CAUSES:
                self._tried.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX)
                continue
            try:
                await self._hear(connection)
                pause = 0.1
            except CAUSES:
                await asyncio.sleep(pause)
            finally:
                connection.terminate()

    async def _hear(self, connection: Any) -> None:
        """Until the connection ends."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(CHANNEL, lambda _c, _pid, _channel, payload: self._heard(payload))
        if self._tried.is_set():
            self._bells.ring_all()  # something may have been missed while nobody listened
        self._tried.set()
        await ended.wait()
