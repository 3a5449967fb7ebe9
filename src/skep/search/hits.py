"""Pages of hits. Pure.

A page token names the files that were shown, and the lines of the last if it was begun only. The next page is the best
of all others, as the index is then: however it changes in between, what stays as it is comes once, and is never passed
over. Where lines are divided among files, each is shown with its best ones, its head; when all were shown, their tails
follow.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from skep.base.errors import BadInput
from skep.search.api import Facet, Facets, Hit, SourceHit
from skep.search.query import Kind
from skep.sources.catalogue import Named, Newest
from skep.storage.code_index.base import Standing, compile_term
from skep.storage.code_index.model import GENERATED, TEST, VENDORED, FileHit, Query, positive
from skep.storage.code_index.ranking import LEAST

# Hits of the index as callers see them: with names instead of numbers, and how fresh they are.

_MARKS = ((TEST, "test"), (VENDORED, "vendored"), (GENERATED, "generated"))
_MOST_FACETS = 20


class Place(NamedTuple):
    """Where files are found that are on the same branches of one source."""

    id: str
    name: str
    branch: str
    commit: str
    fetched_at: float
    branches: tuple[str, ...]


def place(source: Named, standing: Standing, branches: int, fresh: Newest | None, query: Query) -> Place:
    """At the first branch that the query names, of those that have them."""
    tips = [tip for n, tip in enumerate(standing.tips) if branches >> n & 1]
    names = _branches(query)
    first = next((tip for tip in tips if any(name(tip.name.encode()) for name in names)), tips[0])
    fetched_at = _fetched_at(standing, first.commit, fresh)
    return Place(source.id, source.name, first.name, first.commit, fetched_at, tuple(tip.name for tip in tips))


@lru_cache(100)  # a stream asks for each of its hits
def _branches(query: Query) -> list[Callable[[bytes], object]]:
    """What finds the names of branches that it asks for."""
    return [compile_term(term).search for term in positive(query) if term.field == "branch"]


def answer(hit: FileHit, at: Place, kind: Kind) -> Hit:
    return Hit(
        at.id,
        at.name,
        hit.path,
        at.branch,
        at.commit,
        at.fetched_at,
        hit.blob,
        hit.lines if kind == "line" else (),
        hit.more and kind == "line",
        hit.language,
        tuple(name for bit, name in _MARKS if hit.marks & bit) if hit.marks else (),
        at.branches,
        hit.path_ranges,
        round(hit.score, 3),
        hit.why,
    )


def source_answer(source: Named, standing: Standing | None, fresh: Newest | None) -> SourceHit:
    if standing is None:
        return SourceHit(source.id, source.name)
    tip = standing.tips[0]
    return SourceHit(source.id, source.name, tip.name, tip.commit, _fetched_at(standing, tip.commit, fresh))


def _fetched_at(standing: Standing, commit: str, fresh: Newest | None) -> float:
    """A later look that found the same commit makes a hit fresher than its own fetch."""
    if fresh is not None and fresh.commit == commit:
        return max(standing.fetched_at, fresh.looked)
    return standing.fetched_at


def facets(hits: Sequence[FileHit], exact: bool, find: Callable[[int], Named | None]) -> Facets:
    sources = Counter(hit.source for hit in hits)
    names = {number: source.name for number in sources if (source := find(number))}
    return Facets(
        _most(Counter(hit.language for hit in hits if hit.language).items()),
        _most((name, sources[number]) for number, name in names.items()),
        len(hits),
        exact,
    )


def _most(counted: Iterable[tuple[str, int]]) -> list[Facet]:
    ordered = sorted(counted, key=lambda one: (-one[1], one[0]))
    return [Facet(name, files) for name, files in ordered[:_MOST_FACETS]]


#: files, and lines of a file that was begun, that a token can name; whoever wants more wants a stream
MOST_SHOWN = 1000
_MARK = 6
_TAIL = b"tail"
#: of a file: what was or is to be shown, with its mark
Piece = tuple[bytes, FileHit]


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """What earlier pages had."""

    #: lines of them together
    lines: int = 0
    #: a mark of each file
    files: bytes = b""
    #: numbers of the lines that the last file was shown with; none: with all
    begun: tuple[int, ...] = ()
    #: lines of a head; 0: files are shown whole
    head: int = 0

    @staticmethod
    def read(token: str) -> "Shown":
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(token), type=Shown) if token else Shown()
        except (NotBase64, ValueError, msgspec.DecodeError):
            raise BadInput("this page token is none of ours", hint="give back `next_page` as it was") from None

    def token(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    def rest(self, pieces: Sequence[Piece]) -> list[Piece]:
        """What was not shown yet, that which was begun first."""
        known = self._known
        if not known:
            return list(pieces)
        begun = [(mark, self._unshown(hit)) for mark, hit in pieces if self.begun and mark == self.files[-_MARK:]]
        return [piece for piece in begun if piece[1].lines] + [piece for piece in pieces if piece[0] not in known]

    def misses(self, pieces: Sequence[Piece]) -> bool:
        """Is what was begun not among these?"""
        return bool(self.begun) and self.files[-_MARK:] not in {mark for mark, _ in pieces}

    def heads(self, hits: Sequence[FileHit], most: int) -> list[Piece]:
        """Of files that may have so many lines each; on later pages without one that is cut for want of room, because
        what was shown may have left this page more room than that."""
        return [(mark, hit) for mark, hit in pieces(hits) if not (self.files and hit.more and len(hit.lines) < most)]

    def tails(self, heads: Sequence[FileHit], whole: Sequence[FileHit]) -> list[Piece]:
        """Of files whose heads were shown; without one that a limit of lines has cut."""
        known, cut = self._known, {mark: hit for mark, hit in pieces(heads) if hit.more}
        shown = [(cut[mark], hit) for mark, hit in pieces(whole) if mark in known and mark in cut and not hit.more]
        tails = [_without(hit, {line.number for line in head.lines}) for head, hit in shown]
        return [(_mark(tail, _TAIL), tail) for tail in tails if tail.lines]

    def page(self, rest: Sequence[Piece], lines: int, head: int = 0) -> "tuple[list[FileHit], Shown]":
        """So many lines, and what has been shown after them."""
        page: list[FileHit] = []
        left, files = lines, self.files
        begun: tuple[int, ...] = ()
        for mark, hit in rest:
            if left <= 0:
                break
            earlier = self.begun if mark == self.files[-_MARK:] else ()
            if len(hit.lines) > left:
                begun = (*earlier, *(line.number for line in hit.lines[:left]))
            page.append(_cut(hit, left))
            left -= max(1, len(page[-1].lines))
            files = files if earlier else files + mark
        return page, Shown(self.lines + lines - left, files, begun if len(begun) <= MOST_SHOWN else (), head)

    @property
    def _known(self) -> set[bytes]:
        return {self.files[at : at + _MARK] for at in range(0, len(self.files), _MARK)}

    @property
    def is_full(self) -> bool:
        return len(self.files) >= MOST_SHOWN * _MARK

    def _unshown(self, hit: FileHit) -> FileHit:
        return _without(hit, self.begun)


def pieces(hits: Sequence[FileHit]) -> list[Piece]:
    return [(_mark(hit), hit) for hit in hits]


def head(hits: Sequence[FileHit]) -> int:
    """Lines of a head, if lines were divided among these; 0: they were not."""
    return max(LEAST, *(len(hit.lines) for hit in hits)) if any(hit.more for hit in hits) else 0


def size(hits: Iterable[FileHit]) -> int:
    """Lines; a file that is shown for its name is as much as one."""
    return sum(max(1, len(hit.lines)) for hit in hits)


def _cut(hit: FileHit, lines: int) -> FileHit:
    if len(hit.lines) <= lines:
        return hit
    return msgspec.structs.replace(hit, lines=hit.lines[:lines], more=True)


def _without(hit: FileHit, numbers: Collection[int]) -> FileHit:
    return msgspec.structs.replace(hit, lines=tuple(line for line in hit.lines if line.number not in numbers))


def _mark(hit: FileHit, of: bytes = b"") -> bytes:
    """A path may be there several times, with what it has on different branches."""
    name = f"{hit.source}\0{hit.blob}\0{hit.path}".encode("utf-8", "surrogatepass")
    return blake2b(name, digest_size=_MARK, person=of).digest()
