"""Terms that follow each other on a line: what is written like the query, and best of all defined so."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skep.engines.index.ranking import MOST_NEAR, NEAR_BITS
from skep.engines.index.trigram.definitions import Definitions
from skep.engines.index.trigram.postings import Ids

#: what a match is worth to its line: its kind in so many low bits, above them a Near: the row that it ends
KIND_BITS = 4
#: more than all matches on a line can be worth together
WORTH = 1 << 24


class Lying(NamedTuple):
    """How the first matches of a term on its lines lie; arrays of the same length."""

    starts: Ids
    ends: Ids
    kinds: Ids
    #: the definition whose name is touched; -1: none
    touched: Ids


class _Row(NamedTuple):
    """Of each match, the row that ends with it: how many follow another, in one name, from where on."""

    term: Lying
    #: where the lines end
    lines: Ids
    row: Ids
    name: Ids
    first: Ids


def worths(terms: Sequence[Lying], lines: Sequence[Ids], definitions: Definitions) -> list[Ids]:
    """Of each term, what its matches are worth; `lines`: where their lines end."""
    made: list[Ids] = []
    before: _Row | None = None
    for term, ends in zip(terms, lines, strict=True):
        none = np.zeros(len(ends), np.int64)
        row = _Row(term, ends, none, none.copy(), term.starts.copy())
        if before is not None and len(before.lines) and len(ends):
            _join(before, row)
        whole = np.where(definitions.named(term.touched, row.first, term.ends), row.name, 0)
        near = (whole << NEAR_BITS | row.name) << NEAR_BITS | row.row
        made.append(near << KIND_BITS | term.kinds)
        before = row
    return made


def _join(before: _Row, row: _Row) -> None:
    place = np.minimum(np.searchsorted(before.lines, row.lines), len(before.lines) - 1)
    gap = row.term.starts - before.term.ends[place]
    mine = np.flatnonzero((before.lines[place] == row.lines) & (gap >= 0) & (gap <= 1))
    theirs = place[mine]
    row.row[mine] = np.minimum(before.row[theirs] + 1, MOST_NEAR)
    touched = row.term.touched[mine]
    same = (before.term.touched[theirs] == touched) & (touched >= 0)
    mine, theirs = mine[same], theirs[same]
    row.name[mine] = np.minimum(before.name[theirs] + 1, MOST_NEAR)
    row.first[mine] = before.first[theirs]
