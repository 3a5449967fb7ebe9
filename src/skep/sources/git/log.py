"""The commits of a mirror, newest first, as git tells them; in lots, so that one may stop when there are enough."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from skep.errors import Damaged
from skep.sources.git.process import end, environment, start

_LOT = 1 << 18
#: bytes of one commit; a message is no place for more
_MOST = 16 << 20
_FORMAT = "%H%x00%ct%x00%an <%ae>%x00%B"
_FIELDS = 4


class Logged(NamedTuple):
    commit: str
    #: when it was committed
    at: float
    #: name and address
    author: bytes
    message: bytes


async def log(
    folder: Path, tips: Sequence[str], *, after: float | None = None, before: float | None = None
) -> AsyncGenerator[list[Logged], None]:
    """All that the tips, ids of commits, reach. Damaged when git cannot read them."""
    args = ["-C", str(folder), "log", "-z", f"--format={_FORMAT}"]
    if after is not None:
        args.append(f"--max-age={max(0, int(after))}")
    if before is not None:
        args.append(f"--min-age={max(0, int(before) - 1)}")
    child = await start([*args, "--end-of-options", *tips, "--"], environment(), quiet=True)
    assert child.stdin and child.stdout
    try:
        child.stdin.close()
        async with aclosing(_records(child.stdout)) as records:
            async for lot in records:
                yield [Logged(id.decode(), float(at), author, message) for id, at, author, message in lot]
        if await child.wait():
            raise Damaged(f"the commits of {folder.name} cannot be read", hint="fetch the source again")
    finally:
        await end(child)


async def _records(said: asyncio.StreamReader) -> AsyncGenerator[Iterator[tuple[bytes, ...]], None]:
    rest = b""
    while chunk := await said.read(_LOT):
        *fields, rest = (rest + chunk).split(b"\0")
        whole = len(fields) // _FIELDS * _FIELDS
        yield zip(*[iter(fields[:whole])] * _FIELDS, strict=True)
        rest = b"\0".join([*fields[whole:], rest])
        if len(rest) > _MOST:
            raise Damaged(f"a commit is larger than {_MOST >> 20} MB")
