"""The Blobs face: bytes under their sha256, whole or not there."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Protocol

import msgspec

from skep.errors import BadInput

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
