"""Questions to the server whose answers come to one address, so that many can be under way at once."""

import asyncio
from itertools import count

from nats.aio.client import Client
from nats.aio.msg import Msg


class Answers:
    def __init__(self) -> None:
        self._inbox = ""
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}

    async def begin(self, client: Client) -> None:
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def ask(
        self, client: Client, subject: str, body: bytes, headers: dict[str, str] | None = None
    ) -> "asyncio.Future[Msg | None]":
        """Returns when the question is on its way; its answer is None when the connection broke before."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        future: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = future
        try:
            await client.publish(subject, body, reply, headers)
        except BaseException:
            self._waiting.pop(reply, None)
            raise
        return future

    def lose(self) -> None:
        """The connection broke: nobody knows what became of the questions."""
        self.forget(set(self._waiting.values()))

    def forget(self, asked: "set[asyncio.Future[Msg | None]]") -> None:
        self._waiting = {reply: future for reply, future in self._waiting.items() if future not in asked}
        for future in asked:
            if not future.done():
                future.set_result(None)

    async def _heard(self, msg: Msg) -> None:
        future = self._waiting.pop(msg.subject, None)
        if future is not None and not future.done():
            future.set_result(msg)
