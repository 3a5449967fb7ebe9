"""The journal of a run: what the servers acknowledged, and what the clients saw, in the order in which it was written.

Times are seconds since the begin of the run. `since` is when the request began, `at` when its answer came.
"""

import threading
import time
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Published(msgspec.Struct, frozen=True, tag=True):
    """Message number `n` of a producer is stored."""

    at: float
    producer: str
    n: int
    key: str
    partition: int
    offset: int


class Handled(msgspec.Struct, frozen=True, tag=True):
    """A member of the group read a message."""

    at: float
    member: str
    generation: int
    partition: int
    offset: int
    producer: str
    n: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The place of the group in a partition, as a server acknowledged or reported it."""

    since: float
    at: float
    partition: int
    offset: int
    #: reported by the server, and not committed by a member
    seen: bool = False


class Pushed(msgspec.Struct, frozen=True, tag=True):
    """A ref of an upstream repository moved. `word` is in a file of that commit, and in no other."""

    at: float
    repository: str
    ref: str
    new: str | None
    word: str = ""


class SourceAdded(msgspec.Struct, frozen=True, tag=True):
    at: float
    repository: str
    source: str


class ChangeRead(msgspec.Struct, frozen=True, tag=True):
    """A client read this message of `skep.changes`."""

    at: float
    offset: int
    id: str


class ContextSubmitted(msgspec.Struct, frozen=True, tag=True):
    at: float
    id: str
    name: str
    #: its only task has `at_most_once`
    once: bool = False


class Searched(msgspec.Struct, frozen=True, tag=True):
    """A server answered a search for a word with files of these sources."""

    at: float
    server: str
    word: str
    sources: tuple[str, ...]


class TuplePut(msgspec.Struct, frozen=True, tag=True):
    """A tuple is stored. After a put that was `repeated`, an earlier request may arrive late and store it again."""

    at: float
    n: int
    repeated: bool = False


class TupleTaken(msgspec.Struct, frozen=True, tag=True):
    """A taker got the tuple. `ended` is when the server acknowledged that it is done; None when no answer came."""

    since: float
    at: float
    n: int
    ended: float | None


class Unexpected(msgspec.Struct, frozen=True, tag=True):
    """A client or a process did something that no fault explains."""

    at: float
    what: str


class FaultBegun(msgspec.Struct, frozen=True, tag=True):
    at: float
    what: str


class FaultEnded(msgspec.Struct, frozen=True, tag=True):
    at: float
    what: str


Entry = (
    Published
    | Handled
    | Committed
    | Pushed
    | SourceAdded
    | ChangeRead
    | ContextSubmitted
    | Searched
    | TuplePut
    | TupleTaken
    | Unexpected
    | FaultBegun
    | FaultEnded
)


class Journal:
    """Appends to a file; usable by several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._encode = msgspec.json.Encoder().encode
        self._file = path.open("ab", buffering=0)

    def now(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def write(self, entry: Entry) -> None:
        with self._lock:
            self._file.write(self._encode(entry) + b"\n")

    def read(self) -> list[Entry]:
        with self._lock:
            lines = self._path.read_bytes().splitlines()
        decode = msgspec.json.Decoder(Entry).decode
        return [decode(line) for line in lines]

    def close(self) -> None:
        self._file.close()


def of(kind: type[T], entries: list[Entry]) -> list[T]:
    """The entries of one kind."""
    return [one for one in entries if isinstance(one, kind)]
