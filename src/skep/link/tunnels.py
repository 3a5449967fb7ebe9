"""The tunnels of a coordinator, for the rooms above: who gives what to whom. Open while its link is."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from skep.errors import SkepError, Unavailable
from skep.link.carry import dial
from skep.link.messages import Open, What
from skep.streams import Stream

if TYPE_CHECKING:
    from skep.link.server import LinkServer


class Tunnels:
    def __init__(self) -> None:
        self._server: LinkServer | None = None
        self._giving: set[asyncio.Task[None]] = set()

    def attach(self, server: "LinkServer") -> None:
        self._server = server

    @property
    def server(self) -> "LinkServer":
        if self._server is None:
            raise Unavailable("no worker can be reached through a tunnel yet")
        return self._server

    def opened(self, giver: str, what: What) -> AbstractAsyncContextManager[Stream]:
        """What the member gives, taken by this process."""
        return self.server.opened(giver, what)

    async def between(self, giver: str, taker: str, what: What) -> str:
        """The taker's ticket: it dials this process, and so does the giver."""
        ticket = self.server.meeting.issue(giver, taker)
        await self.server.push(giver, Open("", ticket.give, what))
        return ticket.take

    def from_here(self, taker: str, give: Callable[[Stream], Awaitable[None]]) -> str:
        """The taker's ticket for what this process gives itself."""
        ticket = self.server.meeting.issue("", taker)
        task = asyncio.create_task(self._give(ticket.give, give))
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)
        return ticket.take

    async def _give(self, half: str, give: Callable[[Stream], Awaitable[None]]) -> None:
        """The taker hears of what goes wrong at its own end."""
        with contextlib.suppress(SkepError, OSError):
            async with dial(self.server.target, half, "") as stream:
                await give(stream)

    async def close(self) -> None:
        giving = list(self._giving)
        for task in giving:
            task.cancel()
        await asyncio.gather(*giving, return_exceptions=True)
