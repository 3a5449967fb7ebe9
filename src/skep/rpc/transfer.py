"""A folder as a stream of bytes, and back. What comes in is not trusted: names, sizes and checksums are checked.

A list of the files, then their content in blocks, each compressed by itself, so that none can unfold to more than a
block. Before each part stands its length.
"""

import asyncio
import errno
import hashlib
import re
import shutil
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from skep.base.errors import Damaged, NoSpace, TooLarge, Unavailable
from skep.base.io import Stream, sync_file
from skep.storage.blobs import BlobInfo, Blobs, checked_id

_BLOCK = 1 << 20
_LARGEST_PART = _BLOCK + (1 << 16)
_MOST_FILES = 10_000
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/){0,4}[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LENGTH = struct.Struct(">I")


_NOT_AS_SENT = (
    *(msgspec.DecodeError, UnicodeDecodeError, zstandard.ZstdError),
    *(FileExistsError, NotADirectoryError, IsADirectoryError),
)


class File(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


_files = msgspec.msgpack.Decoder(tuple[File, ...]).decode


async def send_folder(folder: Path, stream: Stream) -> None:
    parts = _parts(folder)
    while part := await asyncio.to_thread(next, parts, b""):
        await stream.write(_LENGTH.pack(len(part)) + part)
    await stream.end()


async def take_folder(stream: Stream, into: Path, largest: int) -> None:
    """`into` appears when all of it has arrived and is on disk."""
    new = into.with_name(f"{into.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        incoming = _Incoming(stream)
        files = _checked(await incoming.part(), largest)
        new.mkdir(parents=True)
        for file in files:
            await _take_file(incoming, file, new / file.name)
        await incoming.finish()
        new.rename(into)
    except _NOT_AS_SENT as error:
        raise Damaged(f"a folder did not arrive as it was sent: {error}") from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (NoSpace if full else Unavailable)(f"{into} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


async def send_blob(blobs: Blobs, id: str, stream: Stream) -> None:
    async for chunk in blobs.open(id):
        await stream.write(chunk)
    await stream.end()


async def take_blob(stream: Stream, blobs: Blobs, id: str, largest: int) -> BlobInfo:
    """Nothing is stored unless all of it has arrived."""
    return await blobs.put(_blob(stream, checked_id(id), largest))


async def _blob(stream: Stream, id: str, largest: int) -> AsyncIterator[bytes]:
    hashed, size = hashlib.sha256(), 0
    while data := await stream.read():
        size += len(data)
        if size > largest:
            raise TooLarge(f"the blob {id} is larger than {largest:,} bytes")
        hashed.update(data)
        yield data
    if hashed.hexdigest() != id:
        raise Damaged(f"what came as the blob {id} is another")


def _parts(folder: Path) -> Iterator[bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = [_described(folder, path) for path in paths]
    squeeze = zstandard.ZstdCompressor().compress
    yield squeeze(msgspec.msgpack.encode(files))
    for path in paths:
        with path.open("rb") as content:
            while block := content.read(_BLOCK):
                yield squeeze(block)


def _described(folder: Path, path: Path) -> File:
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return File(path.relative_to(folder).as_posix(), content.tell(), digest)


def _checked(listed: bytes, largest: int) -> Sequence[File]:
    files = _files(listed)
    names = {file.name for file in files}
    if len(names) != len(files) or len(files) > _MOST_FILES or not all(_NAME.fullmatch(name) for name in names):
        raise Damaged("a folder came with names that none of ours has")
    if any(file.size < 0 for file in files) or sum(file.size for file in files) > largest:
        raise TooLarge(f"a folder of more than {largest:,} bytes")
    return files


class _Incoming:
    """The parts of a stream, whatever pieces it comes in."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = bytearray()
        self._unfold = zstandard.ZstdDecompressor()

    async def part(self) -> bytes:
        (length,) = _LENGTH.unpack(await self._take(_LENGTH.size))
        if length > _LARGEST_PART:
            raise Damaged(f"a part of {length} bytes in a folder where {_LARGEST_PART} are the most")
        packed = await self._take(length)
        if zstandard.get_frame_parameters(packed).content_size > _BLOCK:
            raise Damaged("a part of a folder unfolds to more than a block")
        return await asyncio.to_thread(self._unfold.decompress, packed)

    async def finish(self) -> None:
        if self._rest or await self._stream.read():
            raise Damaged("a folder came with more than it said")

    async def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            data = await self._stream.read()
            if not data:
                raise Damaged("a folder ended in the middle")
            self._rest += data
        taken = bytes(self._rest[:size])
        del self._rest[:size]
        return taken


async def _take_file(incoming: _Incoming, file: File, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed, missing = hashlib.sha256(), file.size
    with path.open("xb") as out:
        while missing > 0:
            block = await incoming.part()
            missing -= len(block)
            if not block or missing < 0:
                raise Damaged(f"{file.name} did not arrive as it was sent")
            await asyncio.to_thread(_write, out, hashed, block)
        await asyncio.to_thread(sync_file, out)
    if hashed.hexdigest() != file.sha256:
        raise Damaged(f"{file.name} did not arrive as it was sent")


def _write(out: BinaryIO, hashed: "hashlib._Hash", block: bytes) -> None:
    hashed.update(block)
    out.write(block)
