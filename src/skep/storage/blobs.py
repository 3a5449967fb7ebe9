"""Blobs as files: `FOLDER/ab/<sha256>`, written aside, synced, then renamed into place."""

import asyncio
import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from skep.base.errors import BadInput, NoSpace, NotFound, Unavailable
from skep.base.io import sync_file, sync_folders

# The Blobs face: bytes under their sha256, whole or not there.

_ID = re.compile(r"[0-9a-f]{64}")


class BlobInfo(msgspec.Struct, frozen=True):
    #: sha256 in lower-case hex
    id: str
    size: int


class Blobs(Protocol):
    async def put(self, chunks: AsyncIterable[bytes]) -> BlobInfo:
        """Store and return once durable; the same bytes twice are one blob."""
        ...

    def open(self, id: str, start: int = 0) -> AsyncIterator[bytes]:
        """Chunks from byte `start`; NotFound when there is no such blob."""
        ...

    async def stat(self, id: str) -> BlobInfo | None: ...

    async def delete(self, id: str) -> None: ...

    def list(self) -> AsyncIterator[BlobInfo]: ...


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def checked_id(id: str) -> str:
    """Ids come from outside and become paths and keys."""
    if not is_id(id):
        raise BadInput(f"{id[:100]!r} is no blob id", hint="a blob's id is its sha256: 64 digits of lower-case hex")
    return id


def checked_start(start: int) -> int:
    if start < 0:
        raise BadInput(f"a blob cannot be read from byte {start}")
    return start


CHUNK = 1 << 20


async def open_folder(url: str, *, data: Path) -> Blobs:
    """`file:` is DATA/blobs; `file:PATH` that folder, relative to DATA."""
    root = data / (url.partition(":")[2].removeprefix("//") or "blobs")
    return await asyncio.to_thread(FolderBlobs, root)


class FolderBlobs:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._aside = root / "aside"
        with _explained(root):
            root.mkdir(parents=True, exist_ok=True)
            # what a killed process left half written
            shutil.rmtree(self._aside, ignore_errors=True)
            self._aside.mkdir()

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobInfo:
        with _explained(self._root):
            file = self._begin()  # not in a thread: whoever is cancelled meanwhile would leave it open
            try:
                hashed, size = hashlib.sha256(), 0
                async for chunk in _gathered(chunks):
                    await asyncio.to_thread(_write, file, hashed, chunk)
                    size += len(chunk)
                info = BlobInfo(hashed.hexdigest(), size)
                await asyncio.to_thread(self._settle, file, info.id)
            finally:
                _abandon(file)
        return info

    async def open(self, id: str, start: int = 0) -> AsyncIterator[bytes]:
        path, start = self.path(id), checked_start(start)
        with _explained(path):
            try:
                file = await asyncio.to_thread(path.open, "rb")
            except FileNotFoundError:
                raise NotFound(f"there is no blob {id}") from None
            with file:
                file.seek(start)
                while chunk := await asyncio.to_thread(file.read, CHUNK):
                    yield chunk

    async def stat(self, id: str) -> BlobInfo | None:
        path = self.path(id)
        with _explained(path):
            try:
                return BlobInfo(id, path.stat().st_size)
            except FileNotFoundError:
                return None

    async def delete(self, id: str) -> None:
        path = self.path(id)
        with _explained(path):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def list(self) -> AsyncIterator[BlobInfo]:
        with _explained(self._root):
            for prefix in await asyncio.to_thread(sorted, self._root.iterdir()):
                if len(prefix.name) == 2:
                    for info in await asyncio.to_thread(_infos, prefix):
                        yield info

    def path(self, id: str) -> Path:
        return self._root / checked_id(id)[:2] / id

    def _begin(self) -> BinaryIO:
        descriptor, name = tempfile.mkstemp(dir=self._aside)
        # unbuffered: nothing is left to be written, and to fail, when it is closed
        return open(name, "wb", buffering=0, opener=lambda _name, _flags: descriptor)

    def _settle(self, file: BinaryIO, id: str) -> None:
        sync_file(file)
        place = self.path(id)
        if not place.parent.exists():
            place.parent.mkdir(exist_ok=True)
            sync_folders(self._root)
        Path(file.name).replace(place)
        sync_folders(place.parent)


async def _gathered(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Small chunks together: each one written costs a change of thread."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= CHUNK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _write(file: BinaryIO, hashed: "hashlib._Hash", chunk: bytes) -> None:
    hashed.update(chunk)
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


def _abandon(file: BinaryIO) -> None:
    """Nothing is left under this name once it is renamed. Not in a thread: a cancelled task gets it done as well."""
    file.close()
    Path(file.name).unlink(missing_ok=True)


def _infos(prefix: Path) -> list[BlobInfo]:
    with os.scandir(prefix) as found:
        return sorted((BlobInfo(f.name, f.stat().st_size) for f in found if is_id(f.name)), key=lambda info: info.id)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpace(f"the disk of {path} is full", hint="free some space; nothing stored is lost") from error
        hint = "look at the folder's permissions and at the disk"
        raise Unavailable(f"cannot use {path}: {error.strerror or error}", hint=hint) from error


# Blobs for trying out: forgotten with the process.


async def open_memory(url: str, *, data: Path) -> Blobs:
    return MemoryBlobs()


class MemoryBlobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobInfo:
        whole = b"".join([chunk async for chunk in chunks])
        info = BlobInfo(hashlib.sha256(whole).hexdigest(), len(whole))
        self._kept[info.id] = whole
        return info

    async def open(self, id: str, start: int = 0) -> AsyncIterator[bytes]:
        whole = self._kept.get(checked_id(id))
        if whole is None:
            raise NotFound(f"there is no blob {id}")
        if checked_start(start) < len(whole):
            yield whole[start:]

    async def stat(self, id: str) -> BlobInfo | None:
        whole = self._kept.get(checked_id(id))
        return None if whole is None else BlobInfo(id, len(whole))

    async def delete(self, id: str) -> None:
        self._kept.pop(checked_id(id), None)

    async def list(self) -> AsyncIterator[BlobInfo]:
        for key, whole in sorted(self._kept.items()):
            yield BlobInfo(key, len(whole))
