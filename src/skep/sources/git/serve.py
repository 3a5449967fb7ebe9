"""Read-only smart HTTP from a mirror: `git upload-pack` behind two streams. The door carries them."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from skep.errors import Busy, Damaged
from skep.sources.git.process import end, environment, kill, start

AT_ONCE = 16
WAITING = 256
LONGEST = 3_600.0
_BLOCK = 1 << 16
_CONFIG = (
    ("uploadpack.allowFilter", "true"),
    ("uploadpack.allowAnySHA1InWant", "false"),
    ("transfer.hideRefs", "refs/"),
    ("transfer.hideRefs", "!refs/heads/"),
    ("transfer.hideRefs", "!refs/tags/"),
)
_PROTOCOL = re.compile(r"version=[0-2](:[a-z0-9=:-]{0,60})?")
_SERVICE = b"001e# service=git-upload-pack\n0000"


class Turnstile:
    """So many children at once, so many callers waiting for one; the rest are told to come back."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, seconds: float = LONGEST) -> None:
        #: longest time for one child
        self.seconds = seconds
        self._free = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._inside >= self._most:
            raise Busy("too many clones at once", hint="try again in a minute")
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1


def info_refs(folder: Path, protocol: str, turnstile: Turnstile | None = None) -> AsyncGenerator[bytes, None]:
    """The answer to GET info/refs?service=git-upload-pack."""
    protocol = _known(protocol)
    head = b"" if protocol.startswith("version=2") else _SERVICE
    return _upload_pack(folder, None, protocol, turnstile, "--http-backend-info-refs", head=head)


def upload_pack(
    folder: Path, body: AsyncIterable[bytes], protocol: str, turnstile: Turnstile | None = None
) -> AsyncGenerator[bytes, None]:
    """The answer to POST git-upload-pack; `body` is already unzipped and bounded. Close it when the client is gone."""
    return _upload_pack(folder, body, _known(protocol), turnstile)


async def _upload_pack(
    folder: Path,
    body: AsyncIterable[bytes] | None,
    protocol: str,
    turnstile: Turnstile | None,
    *flags: str,
    head: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    env = environment(_CONFIG, extra={"GIT_PROTOCOL": protocol})
    args = ("upload-pack", "--strict", "--stateless-rpc", "--timeout=600", *flags, str(folder))
    turnstile = turnstile or Turnstile()
    async with turnstile.turn():
        child = await start(args, env, quiet=True)
        assert child.stdin and child.stdout
        feeding = asyncio.ensure_future(_feed(child.stdin, body))
        deadline = asyncio.get_running_loop().call_later(turnstile.seconds, kill, child)
        try:
            said = b""
            while chunk := await child.stdout.read(_BLOCK):
                yield chunk if said else head + chunk
                said = chunk
            if await child.wait() and not said:
                await feeding
                raise Damaged(f"{folder.name} cannot be served", hint="is the request one of git's?")
        finally:
            deadline.cancel()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await end(child)


async def _feed(stdin: asyncio.StreamWriter, body: AsyncIterable[bytes] | None) -> None:
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            if body is not None:
                async for chunk in body:
                    stdin.write(chunk)
                    await stdin.drain()
    finally:
        stdin.close()


def _known(protocol: str) -> str:
    """The client's Git-Protocol header goes into an environment: only what we understand."""
    return protocol if _PROTOCOL.fullmatch(protocol) else ""
