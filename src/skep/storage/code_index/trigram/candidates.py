"""Which documents of one shard a query can be true for, before any text is read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from skep.base.lazy import lazy_property
from skep.storage.code_index.analysis_files import KINDS, Books
from skep.storage.code_index.base import Gains, Size, Standing, Visible
from skep.storage.code_index.model import And, Language, Not, Or, Query, Term, Within
from skep.storage.code_index.ranking import DEFINITION, MEMBER, PART
from skep.storage.code_index.trigram.matchers import Compiled, Finder, Matches, Watch, reads_text
from skep.storage.code_index.trigram.shard import Ids, Mask, Shard

# The names that documents define, by where they are in a shard's content.

#: how good it is to match the whole name of a definition, by its kind
_COVERED = np.array([MEMBER if kind in ("field", "variable", "module") else DEFINITION for kind in KINDS])


class Definitions:
    def __init__(self, books: Books, shard: Shard, documents: Ids) -> None:
        self._shard = shard
        found = books.of(shard.blobs[documents])
        firsts, lasts = shard.spans(documents)
        starts = firsts[found.blob] + found.at
        ends = starts + found.size
        inside = ends <= lasts[found.blob]
        order = np.argsort(starts[inside], kind="stable")
        #: in the content, ascending
        self.starts: Ids = starts[inside][order]
        self.ends: Ids = ends[inside][order]
        self._kinds = found.kind[inside][order]

    def touched(self, starts: Ids, ends: Ids, kinds: Ids) -> tuple[Ids, Ids]:
        """Of each match: the definition whose name it touches, -1 for none; and how good that makes it, if better."""
        if not len(self.starts):
            return np.full(len(starts), -1), kinds
        nth = self.starts.searchsorted(ends) - 1
        touches = (nth >= 0) & (self.ends[nth] > starts)
        covers = touches & (self.starts[nth] >= starts) & (self.ends[nth] <= ends)
        better = np.where(covers, _COVERED[self._kinds[nth]], np.where(touches, PART, 0))
        return np.where(touches, nth, -1), np.maximum(kinds, better)

    def named(self, nth: Ids, starts: Ids, ends: Ids) -> Mask:
        """Which of these are the name of that definition, and no mere field or variable; -1: of none."""
        if not len(self.starts):
            return np.zeros(len(nth), bool)
        is_good = (nth >= 0) & (_COVERED[self._kinds[nth]] == DEFINITION)
        named: Mask = is_good & (self.starts[nth] == starts) & (self.ends[nth] == ends)
        return named

    def at(self, nth: int) -> tuple[int, int, str]:
        """Where its name starts and ends, and its kind."""
        return int(self.starts[nth]), int(self.ends[nth]), KINDS[int(self._kinds[nth])]

    def find(self, finder: Finder, watch: Watch) -> Matches:
        """Where the names of definitions match, each name taken as a line of its own."""
        sizes = self.ends - self.starts + 1
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(self.starts - (ends - sizes), sizes)
        names = np.frombuffer(self._shard.content, np.uint8)[places]
        names[ends - 1] = ord("\n")
        text = names.tobytes()
        found = Matches([], [], [])
        finder.find(text, [(0, len(text))], watch, found)
        chosen = np.searchsorted(ends, found.starts, side="right")
        moved = self.starts[chosen] - (ends - sizes)[chosen]
        made = Matches([], [], [])
        for start, stop in zip((moved + found.starts).tolist(), (moved + found.ends).tolist(), strict=True):
            line = self._shard.content.find(b"\n", stop)
            if not made.lines or made.lines[-1] != line:
                made.add(start, stop, line)
        return made


#: a path term that matches more paths than this is asked of each document when its turn comes
_MOST_PATHS = 200


class Masks:
    def __init__(self, compiled: Compiled, shard: Shard, standings: Mapping[int, Standing], watch: Watch) -> None:
        self._compiled = compiled
        self._shard = shard
        self._standings = standings
        self._watch = watch
        self._known: dict[Term | Within | Language, Mask | None] = {}
        #: whose paths hold the trigrams of a term
        self._paths: dict[Term, Mask | None] = {}

    def true(self, query: Term | Within | Language, documents: Ids) -> Mask:
        """Which of these it is true for; for what is told without reading text."""
        if isinstance(query, Term) and query.field in ("path", "any"):
            possible = self._possible(query)
            places = np.arange(len(documents)) if possible is None else np.flatnonzero(possible[documents])
            true = np.zeros(len(documents), bool)
            if len(places):
                true[places[self._matching(query, documents[places])]] = True
            return true
        mask = self._certain(query)
        assert mask is not None
        return mask[documents]

    def _matching(self, term: Term, documents: Ids) -> Ids:
        """Paths are matched like a text; one that holds newlines, line by line."""
        paths = [self._shard.path(document) + b"\n" for document in documents.tolist()]
        ends = np.fromiter(accumulate(map(len, paths)), np.int64, len(paths))
        text = b"".join(paths)
        found = Matches([], [], [])
        self._compiled.finders[term].find(text, [(0, len(text))], self._watch, found)
        return np.searchsorted(ends, found.starts, side="right")

    def likely(self) -> Mask | None:
        """The documents whose paths promise the best hits; None: no path promises anything."""
        if self._compiled.by_path:
            known = [self._shard.path_postings.mask(ending) for ending in self._compiled.endings]
        else:
            masks = [self._possible(term) for term in self._compiled.placed]
            known = [mask for mask in masks if mask is not None]
        return np.logical_or.reduce(known) if known else None

    def _certain(self, query: Term | Within | Language) -> Mask | None:
        """The documents it is true for; None: too many to say in advance."""
        if query not in self._known:
            self._known[query] = self._mask(query)
        return self._known[query]

    def _mask(self, query: Term | Within | Language) -> Mask | None:
        match query:
            case Within():
                return self._within(query)
            case Language(name):
                return self._language(name)
            case _:
                return self._branch(query) if query.field == "branch" else self._path(query)

    def candidates(self, query: Query) -> Mask | None:
        """The documents the query may be true for; None: any."""
        if isinstance(query, Within | Language):
            return self._certain(query)
        if isinstance(query, Term):
            return self._term(query)
        if isinstance(query, Not):
            if reads_text(query.part):
                return None
            mask = self.candidates(query.part) if self._is_certain(query.part) else None
            return None if mask is None else ~mask
        return self._all(query.parts) if isinstance(query, And) else self._any(query.parts)

    def _is_certain(self, query: Query) -> bool:
        """Is what `candidates` says of it exactly what it is true for?"""
        if isinstance(query, And | Or):
            return all(map(self._is_certain, query.parts))
        return self._is_certain(query.part) if isinstance(query, Not) else self._certain(query) is not None

    def _term(self, term: Term) -> Mask | None:
        if term.field == "branch":
            return self._certain(term)
        if term.field == "path":
            certain = self._certain(term)
            return self._possible(term) if certain is None else certain
        plan = self._compiled.finders[term].plan
        if plan is None:
            return None
        content = self._shard.having(self._shard.content_postings.mask(plan))
        if term.field == "any":
            paths = self._possible(term)
            return None if paths is None else paths | content
        return content

    def _possible(self, term: Term) -> Mask | None:
        """The documents whose path the term may match; None: any."""
        if term not in self._paths:
            plan = self._compiled.finders[term].plan
            self._paths[term] = None if plan is None else self._shard.path_postings.mask(plan)
        return self._paths[term]

    def _all(self, parts: tuple[Query, ...]) -> Mask | None:
        """Paths are matched last, when few are left to be matched."""
        paths = [part for part in parts if isinstance(part, Term) and part.field == "path"]
        narrowed: Mask | None = None
        for part in parts:
            mask = self._possible(part) if part in paths else self.candidates(part)
            if mask is not None:
                narrowed = mask if narrowed is None else narrowed & mask
                if not narrowed.any():
                    break
        for term in paths:
            left = None if narrowed is None else self._narrowed(term, narrowed)
            narrowed = narrowed if left is None else left
        return narrowed

    def _any(self, parts: tuple[Query, ...]) -> Mask | None:
        widened = np.zeros(self._shard.documents, bool)
        for part in parts:
            mask = self.candidates(part)
            if mask is None:
                return None
            widened |= mask
        return widened

    def _within(self, query: Within) -> Mask:
        return np.isin(self._shard.sources, np.fromiter(query.numbers, np.uint32, len(query.numbers)))

    def _language(self, name: str) -> Mask:
        known = self._shard.manifest.languages
        if name not in known:
            return np.zeros(self._shard.documents, bool)
        mask: Mask = self._shard.languages == known.index(name)
        return mask

    def _branch(self, term: Term) -> Mask:
        """By source, because each has branches of its own."""
        matches = cache(self._compiled.finders[term].matches)
        wanted = np.zeros(len(self._shard.numbers), np.uint64)
        for place, number in enumerate(self._shard.manifest.sources):
            tips = self._standings[number].tips if number in self._standings else ()
            wanted[place] = sum(1 << n for n, tip in enumerate(tips) if matches(tip.name.encode()))
        mask: Mask = self._shard.branches & wanted[np.searchsorted(self._shard.numbers, self._shard.sources)] != 0
        return mask

    def _path(self, term: Term) -> Mask | None:
        possible = self._possible(term)
        return None if possible is None else self._narrowed(term, possible)

    def _narrowed(self, term: Term, possible: Mask) -> Mask | None:
        """Without those whose paths do not match; None: there are too many to say."""
        ids: Ids = np.flatnonzero(possible)
        if len(ids) > _MOST_PATHS:
            return None
        mask = np.zeros(self._shard.documents, bool)
        mask[ids[self._matching(term, ids)]] = True
        return mask


# What a search sees: the shards, which of their documents are dead, and where each source stands. Never changed,
# only replaced, so a running search keeps the one it began with.


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A shard and its dead."""

    shard: Shard
    dead: Mask

    @property
    def dead_count(self) -> int:
        return int(np.count_nonzero(self.dead))

    @property
    def live_bytes(self) -> int:
        share = 1 - self.dead_count / self.shard.documents
        return int(self.shard.bytes * share)


@dataclass(frozen=True, eq=False)
class Snapshot:
    parts: tuple[Part, ...] = ()
    #: by source number
    standings: dict[int, Standing] = field(default_factory=dict)
    #: numbers of sources whose shards were damaged, until they are built anew
    lost: frozenset[int] = frozenset()

    @classmethod
    def of(cls, shards: Iterable[Shard], standings: dict[int, Standing]) -> "Snapshot":
        """Of shards in which nothing is dead."""
        return cls(tuple(Part(shard, np.zeros(shard.documents, bool)) for shard in shards), standings)

    def allowed(self, visible: Visible) -> Mask:
        """By source number: seen by the caller, and known to be whole. Long enough for every shard."""
        allowed = np.zeros(self._size, bool)
        shared = min(len(visible), self._size)
        allowed[:shared] = visible[:shared]
        allowed &= self._standing_mask
        return allowed

    def misses(self, visible: Visible) -> bool:
        """Is there a source that the caller may see and that cannot be searched now?"""
        return any(number < len(visible) and visible[number] for number in self.lost)

    def gains(self, gains: Gains | None) -> Gains | None:
        """Long enough for every shard."""
        return None if gains is None else np.pad(gains[: self._size], (0, max(0, self._size - len(gains))))

    def living(self, number: int) -> Iterator[tuple[bytes, str, int]]:
        """Path, git blob and branches of every document of a source."""
        for part in self.parts:
            shard = part.shard
            for document in np.flatnonzero((shard.sources == number) & ~part.dead).tolist():
                yield shard.path(document), shard.blob(document), int(shard.branches[document])

    def blobs(self) -> Iterator[NDArray[np.bytes_]]:
        return (part.shard.blobs[~part.dead] for part in self.parts)

    @lazy_property
    def _size(self) -> int:
        return 1 + max((part.shard.manifest.sources[-1] for part in self.parts), default=0)

    @lazy_property
    def _standing_mask(self) -> Mask:
        mask = np.zeros(self._size, bool)
        mask[[number for number in self.standings if number < self._size]] = True
        return mask

    @lazy_property
    def size(self) -> Size:
        dead = sum(part.dead_count for part in self.parts)
        documents = sum(part.shard.documents for part in self.parts)
        return Size(len(self.parts), documents - dead, sum(part.live_bytes for part in self.parts))


def pack(dead: Mask) -> bytes:
    return np.packbits(dead, bitorder="little").tobytes()


def unpack(dead: bytes, documents: int) -> Mask:
    return np.unpackbits(np.frombuffer(dead, np.uint8), count=documents, bitorder="little").astype(bool)
