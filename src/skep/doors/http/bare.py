"""What routes past Litestar share: how they read a query, answer, and end when nobody waits any more."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar.types import HTTPScope, Send

from skep.errors import BadInput

T = TypeVar("T")


def query_of(scope: HTTPScope, shape: type[T]) -> T:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(query, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"this cannot be read: {error}", hint="/docs lists every operation and its fields") from error


async def respond(send: Send, status: int, body: bytes, media: str = "application/json") -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def unless(ending: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None when `ending` is over before."""
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(ending)
    try:
        await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        waiting.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
