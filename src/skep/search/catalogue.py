"""The sources as a search sees them: names to match `repo:` against, and a mask of what a caller may see.

Kept in memory and brought up to date by what has changed, so that a million sources cost their first reading only.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice

import msgspec
import numpy as np

from skep.base.caller import Caller
from skep.sources.catalogue import Named, named
from skep.sources.model import SourceSettings
from skep.storage.code_index.base import Gains, Visible, compile_term
from skep.storage.code_index.model import And, Not, Or, Query, Term, Within, terms
from skep.storage.database import Database

_AT_ONCE = 10_000
#: answers to `repo:` that are remembered, until the next change
_MOST_REMEMBERED = 64
#: the same whether it is a text or a regular expression
_PLAIN = re.compile(r"[\w/-]+", re.ASCII)
#: sources a mask has room for at first
_ROOM = 1024


class Catalogue:
    def __init__(self, by_label: Mapping[str, SourceSettings]) -> None:
        self._by_label = by_label
        self._sources: dict[int, Named] = {}
        self._place = (-1, -1)
        self._public = self._all = np.zeros(0, np.bool_)
        self._names: _Names | None = None
        #: None: no source is before another
        self.gains: Gains | None = None

    async def refresh(self, db: Database) -> list[Named]:
        """Read what has changed since the last time; returns those that were removed."""
        removed: list[Named] = []
        while changed := await named(db, *self._place, _AT_ONCE, self._by_label):
            self._place = (changed[-1].revision, changed[-1].number)
            self._names = None
            self._mask(changed)
            for source in changed:
                if source.living:
                    self._sources[source.number] = source
                else:
                    self._sources.pop(source.number, None)
                    removed.append(source)
        return removed

    def _mask(self, changed: Sequence[Named]) -> None:
        """Searches hold the masks they began with."""
        size = max(source.number for source in changed) + 1
        room = len(self._all) if size <= len(self._all) else max(size, 2 * len(self._all), _ROOM)
        numbers = [source.number for source in changed]
        masks = [np.concatenate([mask, np.zeros(room - len(mask), np.bool_)]) for mask in (self._public, self._all)]
        masks[0][numbers] = [source.living and source.visibility == "public" for source in changed]
        masks[1][numbers] = [source.living for source in changed]
        self._public, self._all = masks
        self._weigh([source for source in changed if source.priority or self.gains is not None])

    def _weigh(self, changed: Sequence[Named]) -> None:
        if not changed:
            return
        gains = np.zeros(len(self._all), np.int16)
        if self.gains is not None:
            gains[: len(self.gains)] = self.gains
        gains[[source.number for source in changed]] = [source.priority for source in changed]
        self.gains = gains if gains.any() else None

    def find(self, number: int) -> Named | None:
        return self._sources.get(number)

    def visible(self, caller: Caller) -> Visible:
        return self._all if caller.sees("private") else self._public

    async def resolve(self, query: Query) -> Query:
        """Replace every `repo:` by the sources it names."""
        wanted = {term for term in terms(query) if term.field == "source"}
        if not wanted:
            return query
        names = await self._text()
        found = {term: Within(await asyncio.to_thread(names.matching, term)) for term in wanted}
        return _replace(query, found)

    async def named(self, caller: Caller, query: Query) -> list[int] | None:
        """Visible sources for which the query is true, by priority and name; None: it asks about files too."""
        mask = _members(await self.resolve(query), self.visible(caller))
        if mask is None:
            return None
        found = [source for number in np.flatnonzero(mask).tolist() if (source := self.find(number))]
        return [source.number for source in sorted(found, key=lambda source: (-source.priority, source.name))]

    async def like(self, caller: Caller, text: str, limit: int) -> list[Named]:
        """Sources the caller may see whose name contains a text, in no order; for completion."""
        names, mask = await self._text(), self.visible(caller)
        term = Term("source", text, regex=False, case=False)
        found = await asyncio.to_thread(lambda: list(islice(names.scan(term, mask), limit)))
        return [self._sources[number] for number in found if number in self._sources]

    async def _text(self) -> "_Names":
        if self._names is None:
            place = self._place
            made = await asyncio.to_thread(_Names.of, self._sources.copy())
            if place == self._place:
                self._names = made
            return made
        return self._names


class _Names(msgspec.Struct, frozen=True):
    """All names as one text, a line each: looked through at once, however many there are."""

    text: bytes
    starts: list[int]
    numbers: list[int]
    remembered: dict[Term, frozenset[int]] = {}

    @staticmethod
    def of(sources: dict[int, Named]) -> "_Names":
        lines = [source.name.encode("utf-8", "replace").replace(b"\n", b" ") for source in sources.values()]
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        return _Names(b"\n".join(lines), starts, list(sources))

    def matching(self, term: Term) -> frozenset[int]:
        term = Term(term.field, term.pattern, term.regex, term.case)
        known = self.remembered.get(term)
        if known is None:
            if len(self.remembered) >= _MOST_REMEMBERED:
                self.remembered.clear()
            known = self.remembered[term] = frozenset(self.scan(term))
        return known

    def scan(self, term: Term, mask: Visible | None = None) -> Iterator[int]:
        for line in self._lines(term):
            number = self.numbers[line]
            if mask is None or (number < len(mask) and mask[number]):
                yield number

    def _lines(self, term: Term) -> Iterator[int]:
        search, at = compile_term(term).search, 0
        if term.regex and ("\\A" in term.pattern or "\\z" in term.pattern):  # the ends of a name, not of all of them
            yield from (n for n, name in enumerate(self.text.split(b"\n")) if self.numbers and search(name))
            return
        if self.text.isascii() and _PLAIN.fullmatch(term.pattern):
            text, wanted = self.text, term.pattern.encode()
            if not term.case:
                text, wanted = text.lower(), wanted.lower()
            while (found := text.find(wanted, at)) >= 0:  # many times faster, and names are most often asked for so
                line = bisect_right(self.starts, found) - 1
                yield line
                at = self.starts[line + 1]
            return
        while at < len(self.text) and (match := search(self.text, at)):
            line = bisect_right(self.starts, match.start()) - 1
            yield line
            at = self.starts[line + 1]


def _members(query: Query, visible: Visible) -> Visible | None:
    """Which of the visible sources the query is true for, if it is about nothing else."""
    match query:
        case Within(numbers):
            mask = np.zeros(len(visible), np.bool_)
            mask[[number for number in numbers if number < len(mask)]] = True
            return mask & visible
        case Not(part):
            inner = _members(part, visible)
            return None if inner is None else visible & ~inner
        case And(parts) | Or(parts):
            masks = [_members(part, visible) for part in parts]
            known = [mask for mask in masks if mask is not None]
            if len(known) < len(masks):
                return None
            both = isinstance(query, And)
            return np.all([visible, *known], axis=0) if both else np.any(known, axis=0)  # type: ignore[no-any-return]
        case _:
            return None


def _replace(query: Query, found: dict[Term, Within]) -> Query:
    match query:
        case Term():
            return found.get(query, query)
        case And(parts) | Or(parts):
            return type(query)(tuple(_replace(part, found) for part in parts))
        case Not(part):
            return Not(_replace(part, found))
        case _:
            return query
