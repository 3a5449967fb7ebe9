"""The same for asyncio: each verb runs in a thread, so there is one set of verbs and no twin to keep in step."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Self

from skep.client.async_space import AsyncSpace
from skep.client.client import Client
from skep.client.consumer import Consumer, Received
from skep.client.producer import Producer

_END = object()
#: verbs of one producer or consumer, or of the spaces of a client, at a time
_THREADS = 32


class AsyncClient:
    """`await skep.sources.add(url)`; what the client iterates over, this one does with `async for`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        self._client = Client(url, token, timeout=timeout)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="skep-space")

    def space(self, name: str) -> AsyncSpace:
        return AsyncSpace(self._client.space(name), self._threads)

    def __getattr__(self, name: str) -> Any:
        return _wrap(getattr(self._client, name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()
        await asyncio.to_thread(self._threads.shutdown)


class _Worker:
    """A Producer or Consumer with threads of its own, made when the `async with` block begins."""

    _kind: ClassVar[type[Producer | Consumer]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._make = partial(self._kind, *args, **kwargs)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="skep-async")
        self._inner: Any = None

    async def __aenter__(self) -> Self:
        try:
            self._inner = await self._in_thread(self._make)
        except BaseException:
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._in_thread(self._inner.__exit__, *error)
        finally:
            await asyncio.to_thread(self._threads.shutdown)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        return partial(self._in_thread, member) if inspect.ismethod(member) else member

    def _in_thread(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(verb, *args, **kwargs))


class AsyncProducer(_Worker):
    """`async with AsyncProducer() as producer: await producer.send("news", "hello")`"""

    _kind = Producer


class AsyncConsumer(_Worker):
    """`async with AsyncConsumer("news") as consumer: async for message in consumer: …`"""

    _kind = Consumer
    _asked: "asyncio.Future[Any] | None" = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        """A message that arrives after its asker was cancelled is given to the next one."""
        if self._asked is None:
            self._asked = self._in_thread(next, self._inner, _END)
        await asyncio.wait([self._asked])
        item, self._asked = self._asked.result(), None
        if item is _END:
            raise StopAsyncIteration
        return item  # type: ignore[no-any-return]

    async def __aexit__(self, *error: object) -> None:
        self._inner.stop()
        if self._asked is not None:
            await asyncio.wait([self._asked])
            self._inner.unhandled()
        await super().__aexit__(*error)


class _Noun:
    def __init__(self, noun: object) -> None:
        self._noun = noun

    def __getattr__(self, name: str) -> Any:
        return _wrap(getattr(self._noun, name))


def _wrap(member: Any) -> Any:
    if not inspect.ismethod(member):
        return member if isinstance(member, str | bool) else _Noun(member)
    answer = inspect.signature(member).return_annotation
    if getattr(answer, "__name__", "") == "Iterator":
        return lambda *args, **kwargs: _each(member, args, kwargs)
    return lambda *args, **kwargs: asyncio.to_thread(member, *args, **kwargs)


async def _each(member: Callable[..., Iterator[Any]], args: Any, kwargs: Any) -> AsyncIterator[Any]:
    items = await asyncio.to_thread(member, *args, **kwargs)
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield item
