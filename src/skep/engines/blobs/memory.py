"""Blobs for trying out: forgotten with the process."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from skep.engines.blobs.base import BlobInfo, Blobs, checked_id, checked_start
from skep.errors import NotFound


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
