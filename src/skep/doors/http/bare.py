"""What routes past Litestar share: how they read a query, answer, and end when nobody waits any more."""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar.types import HTTPScope, Receive, Send

from skep.errors import BadInput
from skep.loops import racing

T = TypeVar("T")
#: headers of what is read as it comes
STREAMED = {"cache-control": "no-store", "x-accel-buffering": "no"}


def query_of(scope: HTTPScope, shape: type[T]) -> T:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(query, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"this cannot be read: {error}", hint="/docs lists every operation and its fields") from error


async def respond(
    send: Send, status: int, body: bytes, media: str = "application/json", more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def left(receive: Receive) -> None:
    """The client went away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless(ending: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None when `ending` is over before."""
    async with racing(work, ending) as (doing, _):
        given: T | None = doing.result() if doing.done() else None
    return given
