"""Hits of the index as callers see them: with names instead of numbers, and how fresh they are."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from skep.engines.index.base import Standing
from skep.engines.index.dialect import compile_term
from skep.model.search import GENERATED, TEST, VENDORED, FileHit, Query, positive
from skep.model.search_answers import Facet, Facets, Hit, SourceHit
from skep.search.fields import Kind
from skep.sources.views import Named, Newest

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
