"""The Log face: messages appended to a partition get offsets from 0 without gaps, and stay until trimmed."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from skep.engines.db.base import Bell, Tx
from skep.model.topic import Draft, Message, Part


class Promises(msgspec.Struct, frozen=True):
    """What a log says of itself; the contract suite tests what it says."""

    #: appended messages are on disk before `append` returns
    fsync: bool
    #: the drafts of one `append` are stored all or none
    atomic_batch: bool
    #: seconds in which a repeated draft id is stored once; inf: while the message is kept, 0: not at all
    dedup_window: float


class Log(Protocol):
    promises: Promises

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]: ...

    async def read(self, part: Part, offset: int, limit: int) -> list[Message]:
        """Messages from `offset` on; below the trimmed edge it starts at the edge."""
        ...

    async def bounds(self, part: Part) -> tuple[int, int]:
        """First kept offset and the next to be given."""
        ...

    async def size(self, part: Part) -> int:
        """Bytes of the bodies it keeps; an engine that counts more (headers) says so."""
        ...

    async def trim(self, part: Part, before: int) -> None: ...

    def listen(self, part: Part) -> AbstractAsyncContextManager[Bell]: ...

    async def close(self) -> None: ...


@runtime_checkable
class TxLog(Log, Protocol):
    """A log that lives in the database, so that an append can be part of a larger transaction."""

    async def append_in(
        self, tx: Tx, part: Part, drafts: Sequence[Draft], now: float, *, repeats: bool = True
    ) -> list[int]:
        """Without `repeats`, Conflict when one of the drafts is stored already."""
        ...
