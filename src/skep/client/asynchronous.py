"""The same for asyncio. Verbs run in threads, so there is one set of them and no twin to keep in step; what a producer
sends goes out on the caller's own loop."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

from skep.base.errors import SkepError
from skep.client.async_space import AsyncSpace
from skep.client.client import Client
from skep.client.consumer import Consumer, Received
from skep.client.producer import Failed, Item, Sending, full, item, with_topics
from skep.client.topics import Outgoing
from skep.topics.api import Posted

_END = object()
#: verbs of one consumer, or of the spaces of a client, at a time
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


class AsyncProducer:
    """`async with AsyncProducer() as producer: await producer.send("news", "hello")`; as Producer, on this loop."""

    def __init__(
        self,
        topics: str | Iterable[str] | None = None,
        broker: str | Client | None = None,
        *,
        token: str | None = None,
        patience: float = 60.0,
        room: int = 10_000,
        on_error: Failed | None = None,
    ) -> None:
        self._connect = partial(with_topics, broker, token, topics or (), patience)
        self._patience = patience
        self._on_error = on_error
        self._room = room
        self._places = asyncio.Semaphore(room)

    async def send(
        self,
        topic: str,
        message: object,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> Posted:
        """Stored on return. Who is cancelled meanwhile cannot know."""
        answer: asyncio.Future[Posted] = asyncio.get_running_loop().create_future()
        wanted = item(topic, Outgoing(message, key, headers or {}, partition), answer)
        await self._places.acquire()
        self._put(wanted)
        return await answer

    async def buffer(
        self,
        topic: str,
        message: object,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        block: bool = True,
    ) -> None:
        wanted = item(topic, Outgoing(message, key, headers or {}, partition), None)
        if self._places.locked() and not block:
            raise full(self._room)
        await self._places.acquire()
        self._put(wanted)

    async def flush(self) -> None:
        await self._sending.flush()

    async def stop(self) -> None:
        try:
            await self._sending.stop()
        finally:
            self._client.close()

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(self._connect)
        self._sending = Sending(self._client.transport, self._patience, self._on_error, self._settled)
        self.id = self._sending.id
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _put(self, wanted: Item) -> None:
        try:
            self._sending.put(wanted)
        except SkepError:
            self._places.release()
            raise

    def _settled(self, many: int) -> None:
        for _ in range(many):
            self._places.release()


class AsyncConsumer:
    """`async with AsyncConsumer("news") as consumer: async for message in consumer: …`; a Consumer with threads of its
    own, made when the block begins."""

    _asked: "asyncio.Future[Any] | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._make = partial(Consumer, *args, **kwargs)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="skep-async")
        self._inner: Any = None

    async def __aenter__(self) -> Self:
        try:
            self._inner = await self._in_thread(self._make)
        except BaseException:
            self._threads.shutdown(wait=False)
            raise
        return self

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
        try:
            if self._asked is not None:
                await asyncio.wait([self._asked])
                self._inner.unhandled()
            await self._in_thread(self._inner.__exit__, *error)
        finally:
            await asyncio.to_thread(self._threads.shutdown)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        return partial(self._in_thread, member) if inspect.ismethod(member) else member

    def _in_thread(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(verb, *args, **kwargs))


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
