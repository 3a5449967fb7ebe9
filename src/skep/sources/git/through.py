"""Git through a stream of bytes instead of a URL: how mirrors pass between machines that cannot dial each other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from skep.sources.git.process import end, environment, start
from skep.streams import SocketStream, Stream, pump, socket_pair

#: a new stream to the mirror that is copied; each git process needs one
Opened = Callable[[], AbstractAsyncContextManager[Stream]]


async def give(folder: Path, stream: Stream) -> None:
    """Serve the mirror, with its hidden refs, until the other side has what it wants or is gone."""
    async with socket_pair() as (ours, theirs):
        env = environment(extra={"GIT_PROTOCOL": "version=2"})
        child = await start(("upload-pack", "--strict", str(folder)), env, quiet=True, io=theirs.fileno())
        theirs.close()
        try:
            await pump(ours, stream)
        finally:
            await end(child)


@asynccontextmanager
async def reached(opened: Opened) -> AsyncIterator[tuple[str, int]]:
    """A URL for one git process, and the descriptor it has to inherit. (Unlike `ext::`, `fd::` runs nothing.)"""
    async with opened() as stream, socket_pair() as (ours, theirs):
        pumping = asyncio.create_task(_pump(ours, stream))
        try:
            yield f"fd::{theirs.fileno()}", theirs.fileno()
        finally:
            pumping.cancel()
            await asyncio.gather(pumping, return_exceptions=True)


async def _pump(ours: SocketStream, stream: Stream) -> None:
    """When the stream breaks off, git has to see it."""
    try:
        await pump(ours, stream)
    finally:
        ours.close()
