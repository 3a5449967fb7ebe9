"""The Index face: workers make immutable deltas, a Searcher on aggregators adopts them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import re2
from numpy.typing import NDArray

from skep.base.errors import BadQuery
from skep.storage.code_index.model import BookInfo, Counted, Damage, Delta, Fence, FileHit, Limits, Query, Term, Tip
from skep.storage.database import Database, Row, Tx

#: by source number: may the caller see it? Numbers beyond the end are hidden.
Visible = NDArray[np.bool_]
#: by source number: points that its files gain by the priority of their source. Beyond the end: none.
Gains = NDArray[np.int16]


class Standing(msgspec.Struct, frozen=True):
    """Where the index of a source stands."""

    source: str
    number: int
    #: the default branch first
    tips: tuple[Tip, ...]
    fetched_at: float
    #: by which it was made
    rules: str = ""

    @property
    def commit(self) -> str:
        """Of the default branch."""
        return self.tips[0].commit


class Hits(Protocol):
    """A running search: iterate for the files; then `partial` and `counted` are settled."""

    def __aiter__(self) -> AsyncIterator[FileHit]: ...

    #: the deadline or a limit ended it before every candidate was read
    partial: bool
    #: of what the caller may see
    counted: Counted

    def standing(self, number: int) -> Standing:
        """Of a source with hits, in the very snapshot that was searched."""
        ...


#: searches the files of one source that a delta takes away, or those it brings
Side = Callable[[Query, Limits], Hits]
#: is shown both sides of a delta; what it returns is done in the transaction that adopts it
Watcher = Callable[[Delta, Fence, Side, Side], Awaitable[Callable[[Tx], Awaitable[None]] | None]]


class Size(msgspec.Struct, frozen=True):
    shards: int
    documents: int
    bytes: int


class Searcher(Protocol):
    #: whose transactions adopt
    db: Database

    async def start(self) -> None:
        """Open what the database names, set damaged shards aside, remove folders nobody names."""
        ...

    async def adopt(self, delta: Delta, fence: Fence, watcher: Watcher | None = None) -> bool:
        """Swap in a delta, in one transaction; doing it twice is harmless. False when fence or base are stale."""
        ...

    async def annotate(self, info: BookInfo) -> bool:
        """Take in a book; doing it twice is harmless. False when it is lost or damaged."""
        ...

    def annotated(self, blobs: Sequence[str]) -> bool:
        """Are all of these in a book?"""
        ...

    async def drop(self, source: str, number: int) -> None: ...

    def search(self, query: Query, visible: Visible, limits: Limits, gains: Gains | None = None) -> Hits:
        """`source` terms were resolved into Within by the caller of this; here they are not allowed."""
        ...

    def search_beside(
        self,
        shards: Sequence[Path],
        books: Sequence[Path],
        standings: dict[int, Standing],
        query: Query,
        visible: Visible,
        limits: Limits,
    ) -> Hits:
        """In shards and books that are not part of the index; reads their heads. Damaged when one cannot be opened."""
        ...

    def standing(self, number: int) -> Standing | None: ...

    def indexed(self) -> list[tuple[str, int]]:
        """Id and number of every source in the index."""
        ...

    async def lost(self) -> list[str]:
        """Ids of sources whose shards were damaged and set aside: to be built anew."""
        ...

    def size(self) -> Size: ...

    async def merge_once(self) -> bool:
        """Merge small or half-dead shards; False when there is nothing to merge."""
        ...

    async def check(self) -> list[Damage]: ...

    async def digest(self, number: int) -> str:
        """Of the documents of a source; see model.search.digest."""
        ...

    async def close(self) -> None: ...


# The pattern language of every index: RE2, Unicode, line by line. Users' patterns run here and nowhere else.
#
# Python's own `re` would let one pattern occupy a core for ever; RE2 is linear in the text whatever it is asked.

#: `^` and `$` mean the line's start and end
_PREFIX = b"(?m)"
#: bytes RE2 may spend on one pattern; also bounds its automaton, and so the time for one byte of text
_MEMORY = 2 << 20

_HINTS = (
    ("invalid perl operator: (?", "look-around is not part of RE2; use a second word or -word instead"),
    ("invalid escape sequence", "RE2 knows no such escape and no back-references; write \\\\ for a backslash"),
    ("missing )", "close the group, or write \\( for the character"),
    ("unexpected )", "open the group, or write \\) for the character"),
    ("missing ]", "close the class, or write \\[ for the character"),
    ("no argument for repetition", "write something before it, or a backslash for the character itself"),
    ("bad repetition", "one repetition is enough; group with (?:…) to repeat a repetition"),
    ("invalid repetition size", "at most 1000 repetitions, nested ones multiplied"),
    ("trailing \\", "write \\\\ for a backslash"),
    ("pattern too large", "make the repetitions smaller"),
)


def encode(term: Term) -> bytes:
    """The pattern's bytes; bytes that came in as lone surrogates go out as they were."""
    try:
        return term.pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadQuery("the pattern is not valid Unicode", column=term.column + error.start) from None


def compile_term(term: Term) -> Any:
    """The term as an RE2 object that never matches across lines; BadQuery points at what is wrong with it."""
    pattern = encode(term)
    if not term.regex:
        pattern = re2.escape(pattern)
    try:
        return re2.compile(_PREFIX + pattern, _options(term))
    except re2.error as error:
        raise _bad(term, error.args[0]) from None


def searcher(regex: Any) -> Callable[[bytes | mmap, int, int], Sequence[tuple[int, int]]]:
    """Where a compiled term matches first, from here to there in a text, as the first of a sequence; -1: nowhere. Asked
    of RE2 itself: what its Python wraps around a match on a line takes longer than finding it."""
    return partial(regex._regexp.Match, re2._Anchor.UNANCHORED)


def _options(term: Term) -> Any:
    options = re2.Options()
    options.case_sensitive = term.case
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


def _bad(term: Term, said: bytes | str) -> BadQuery:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    reason, _, piece = text.partition(": ")
    piece = piece.removeprefix(_PREFIX.decode())
    text = f"{reason}: {piece}" if piece else reason
    found = term.pattern.rfind(piece) if reason == "trailing \\" else term.pattern.find(piece)
    if reason == "missing )":
        found = _unclosed(term.pattern)
    hint = next((hint for start, hint in _HINTS if text.startswith(start)), "see the RE2 syntax for what is possible")
    return BadQuery(f"invalid regular expression: {text}", hint=hint, column=term.column + max(found, 0))


def _unclosed(pattern: str) -> int:
    """Where the first group begins that nothing closes."""
    opened: list[int] = []
    in_class = escaped = False
    for at, char in enumerate(pattern):
        if escaped or char == "\\":
            escaped = not escaped
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            opened.append(at)
        elif char == ")" and opened:
            opened.pop()
    return opened[0] if opened else 0


# The tables that every index has: where each source stands, and which ones lost what they had.

Also = Callable[[Tx], Awaitable[None]]


def steps(prefix: str = "") -> str:
    return f"""
    CREATE TABLE {prefix}indexed (
        source TEXT PRIMARY KEY, number BIGINT NOT NULL, tips TEXT NOT NULL, rules TEXT NOT NULL,
        epoch BIGINT NOT NULL, fetched_at DOUBLE PRECISION NOT NULL, batch TEXT NOT NULL);
    CREATE INDEX {prefix}indexed_number ON {prefix}indexed (number);
    CREATE TABLE {prefix}lost (source TEXT PRIMARY KEY);
    """


class Standings:
    def __init__(self, db: Database, prefix: str = "") -> None:
        self._db = db
        self._indexed, self._lost = f"{prefix}indexed", f"{prefix}lost"

    async def standings(self) -> dict[int, Standing]:
        rows = await self._db.read(f"SELECT * FROM {self._indexed}")  # noqa: S608
        return {
            row["number"]: Standing(row["source"], row["number"], _tips(row), row["fetched_at"], row["rules"])
            for row in rows
        }

    async def lost(self) -> list[str]:
        rows = await self._db.read(f"SELECT source FROM {self._lost} ORDER BY source")  # noqa: S608
        return [row["source"] for row in rows]

    async def was_adopted(self, delta: Delta, fence: Fence) -> bool | None:
        """True: already, and nothing since; False: it is stale; None: it may be adopted."""
        found = f"SELECT * FROM {self._indexed} WHERE source = :source"  # noqa: S608
        rows = await self._db.read(found, source=delta.source)
        if any(row["batch"] == _batch(delta) and _tips(row) == delta.tips for row in rows):
            return True
        return False if _is_stale(rows, delta, fence) else None

    async def adopt(self, delta: Delta, fence: Fence, change: Also, also: Also | None = None) -> bool:
        """False, and nothing changed, when another adoption came first."""

        async def work(tx: Tx) -> bool:
            held = f"SELECT * FROM {self._indexed} WHERE source = :source FOR UPDATE"  # noqa: S608
            if _is_stale(await tx.rows(held, source=delta.source), delta, fence):
                return False
            await tx.rows(
                f"INSERT INTO {self._indexed} (source, number, tips, rules, epoch, fetched_at, batch)"  # noqa: S608
                " VALUES (:source, :number, :tips, :rules, :epoch, :fetched_at, :batch)"
                " ON CONFLICT (source) DO UPDATE SET number = excluded.number, tips = excluded.tips,"
                " rules = excluded.rules, epoch = excluded.epoch, fetched_at = excluded.fetched_at,"
                " batch = excluded.batch",
                source=delta.source,
                number=delta.number,
                tips=msgspec.json.encode(delta.tips).decode(),
                rules=delta.rules,
                epoch=fence.epoch,
                fetched_at=fence.fetched_at,
                batch=_batch(delta),
            )
            await self._found_again(tx, delta.source)
            await change(tx)
            if also is not None:
                await also(tx)
            return True

        return await self._db.write(work)

    async def drop(self, source: str, change: Also) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows(f"DELETE FROM {self._indexed} WHERE source = :source", source=source)  # noqa: S608
            await self._found_again(tx, source)
            await change(tx)

        await self._db.write(work)

    async def _found_again(self, tx: Tx, source: str) -> None:
        await tx.rows(f"DELETE FROM {self._lost} WHERE source = :source", source=source)  # noqa: S608


def _is_stale(rows: list[Row], delta: Delta, fence: Fence) -> bool:
    """May the delta no longer be adopted? It comes from an older holder, or builds on tips that are not indexed."""
    if any(fence.epoch < row["epoch"] for row in rows):
        return True
    return delta.base is not None and not any(_tips(row) == delta.base for row in rows)


def _batch(delta: Delta) -> str:
    return " ".join(info.id for info in delta.shards)


def _tips(row: Row) -> tuple[Tip, ...]:
    return msgspec.json.decode(row["tips"], type=tuple[Tip, ...])
