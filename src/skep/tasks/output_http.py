"""What a task writes: as JSON, and as server-sent events whose `id` is `attempt/n` and whose last is `ended`."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence

import msgspec

from skep.base.answers import OutputChunk
from skep.base.caller import Caller
from skep.tasks.model import Chunk, Stream
from skep.tasks.service import Tasks
from skep.topics.messages_http import HEARTBEAT_SECONDS

#: an answer ends when it has as many bytes as this
_ANSWER = 4_000_000
_encode = msgspec.json.Encoder().encode


def shown(chunk: Chunk) -> OutputChunk:
    try:
        text, raw = chunk.body.decode(), ""
    except UnicodeDecodeError:
        text, raw = "", b64encode(chunk.body).decode()
    return OutputChunk(chunk.attempt, chunk.n, chunk.stream, chunk.at, text, raw)


def bounded(chunks: Sequence[Chunk]) -> list[OutputChunk]:
    size = 0
    fit: list[OutputChunk] = []
    for chunk in chunks:
        size += len(chunk.body)
        if fit and size > _ANSWER:
            break
        fit.append(shown(chunk))
    return fit


async def events(
    tasks: Tasks, caller: Caller, id: str, attempt: int, after: int, stream: Stream | None, closing: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    yield b": following\n\n"
    chunks = tasks.follow(caller, id, attempt=attempt, after=after)
    ending = asyncio.ensure_future(closing.wait())
    coming = asyncio.ensure_future(_next(chunks))
    try:
        while not closing.is_set():
            # the generator is never cancelled while it waits: that would end it
            done, _ = await asyncio.wait({coming, ending}, timeout=HEARTBEAT_SECONDS, return_when="FIRST_COMPLETED")
            if not done:
                yield b": still here\n\n"
            elif coming in done:
                chunk = coming.result()
                if chunk is None:
                    task = (await tasks.show(caller, id)).task
                    yield b"event: ended\ndata: %b\n\n" % _encode(task)
                    return
                if stream in (None, chunk.stream):
                    yield b"id: %d/%d\ndata: %b\n\n" % (chunk.attempt, chunk.n, _encode(shown(chunk)))
                coming = asyncio.ensure_future(_next(chunks))
    finally:
        coming.cancel()
        ending.cancel()
        await asyncio.gather(coming, ending, return_exceptions=True)
        await chunks.aclose()


async def _next(chunks: AsyncGenerator[Chunk, None]) -> Chunk | None:
    return await anext(chunks, None)
