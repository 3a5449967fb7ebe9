"""The same client for asyncio: each verb runs in a thread, so there is one set of verbs and no twin to keep in step."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

from skep.client.client import Client

_END = object()


class AsyncClient:
    """`await skep.sources.add(url)`; what the client iterates over, this one does with `async for`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        self._client = Client(url, token, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return _wrap(getattr(self._client, name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()


class _Noun:
    def __init__(self, noun: object) -> None:
        self._noun = noun

    def __getattr__(self, name: str) -> Any:
        return _wrap(getattr(self._noun, name))


def _wrap(member: Any) -> Any:
    if not inspect.ismethod(member):
        return member if isinstance(member, str | bool) else _Noun(member)
    if inspect.signature(member).return_annotation.__name__ == "Iterator":
        return lambda *args, **kwargs: _each(member, args, kwargs)
    return lambda *args, **kwargs: asyncio.to_thread(member, *args, **kwargs)


async def _each(member: Callable[..., Iterator[Any]], args: Any, kwargs: Any) -> AsyncIterator[Any]:
    items = await asyncio.to_thread(member, *args, **kwargs)
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield item
