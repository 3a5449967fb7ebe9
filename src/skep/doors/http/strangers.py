"""Bodies of callers without a token: they are small and arrive soon, or they are refused."""

import asyncio
import time

from litestar.types import HTTPScope, Receive
from litestar.types.asgi_types import HTTPReceiveMessage

from skep.errors import TooLarge, TooSlow

#: bytes of a body of a caller without a token
STRANGERS_LIMIT = 65_536
#: seconds in which it has to arrive
STRANGERS_SECONDS = 30.0
#: what git sends has limits of its own (see git.py): a clone names each ref that it wants, and git reads it as it comes
_GIT = "/git/"
#: a forge names each file that changed; what it sends is decoded only when its signature is right (see hooks.py)
_HOOKS = "/hooks/"


def bounded(scope: HTTPScope, receive: Receive) -> Receive:
    if scope["user"].known or scope["path"].startswith(_GIT):
        return receive
    return StrangersBody(scope, receive)


class StrangersBody:
    """`receive` of ASGI. It reads nothing and refuses nothing before a handler reads the body."""

    def __init__(self, scope: HTTPScope, receive: Receive, seconds: float = STRANGERS_SECONDS) -> None:
        self._scope = scope
        self._receive = receive
        self._seconds = seconds
        self._left: float = float("inf") if scope["path"].startswith(_HOOKS) else STRANGERS_LIMIT
        self._until: float | None = None
        self._is_whole = False

    async def __call__(self) -> HTTPReceiveMessage:
        if self._is_whole:  # the next message is that the client hangs up: there is no hurry
            return await self._next()
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            self._take(_announced(self._scope), of=self._left)
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._next()
        except TimeoutError:
            raise TooSlow(
                f"the body did not arrive within {self._seconds:g} seconds", hint="send it faster, or with a token"
            ) from None
        if message["type"] == "http.request":
            self._is_whole = not message.get("more_body", False)
            self._left = self._take(len(message["body"]), of=self._left)
        return message

    async def _next(self) -> HTTPReceiveMessage:
        return await self._receive()  # type: ignore[return-value]  # as this is HTTP

    def _take(self, size: int, of: float) -> float:
        if size > of:
            raise TooLarge(
                f"a request without a token has at most {STRANGERS_LIMIT:,} bytes",
                hint="send `Authorization: Bearer TOKEN`",
            )
        return of - size


def _announced(scope: HTTPScope) -> int:
    found = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(found) if found.isdigit() else 0
