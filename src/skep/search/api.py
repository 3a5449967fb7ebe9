"""What a search answers: files, sources, records, what else there is, and completions."""

from collections.abc import Iterable
from typing import Any

import msgspec

from skep.storage.code_index.model import Counted, Line, Reason

# The lines of a hit with what stands around them, each line once. Pure; pages and the command line show the same.


class Row(msgspec.Struct, frozen=True):
    number: int
    text: str
    #: None: context
    line: Line | None = None


def excerpts(lines: Iterable[Line]) -> list[list[Row]]:
    """In the order of the file, cut where lines are left out between them."""
    rows: dict[int, Row] = {}
    for line in lines:
        first = line.number - len(line.before)
        for number, text in [*enumerate(line.before, first), *enumerate(line.after, line.number + 1)]:
            rows.setdefault(number, Row(number, text))
        rows[line.number] = Row(line.number, line.text, line)
    groups: list[list[Row]] = []
    for number in sorted(rows):
        if not groups or groups[-1][-1].number != number - 1:
            groups.append([])
        groups[-1].append(rows[number])
    return groups


class Hit(msgspec.Struct, frozen=True):
    """The matching lines of one file, and how fresh they are."""

    #: id of the source
    source: str
    #: name of the source
    name: str
    path: str
    branch: str
    commit: str
    #: when this commit was last known to be the upstream's newest
    fetched_at: float
    blob: str
    lines: tuple[Line, ...]
    #: this file has more matching lines than these
    more: bool = False
    #: empty: not known
    language: str = ""
    #: "test", "vendored", "generated"
    marks: tuple[str, ...] = ()
    #: all that have the file so; `branch` is the first of them, or the first that the query names
    branches: tuple[str, ...] = ()
    #: character ranges of the path that matched
    path_ranges: tuple[tuple[int, int], ...] = ()
    score: float = 0.0
    #: what the score is made of, when asked to explain
    why: tuple[Reason, ...] = ()


class SourceHit(msgspec.Struct, frozen=True):
    """`type:repo`: a source that matches, or has files that do."""

    source: str
    name: str
    #: None: it is not searchable yet
    branch: str | None = None
    commit: str | None = None
    fetched_at: float | None = None


class CommitHit(msgspec.Struct, frozen=True):
    """`type:commit`: a commit whose message, author and time match."""

    #: id and name of the source
    source: str
    name: str
    commit: str
    #: name and address
    author: str
    #: when it was committed
    at: float
    #: first line of its message
    subject: str
    #: further lines of it that match, the first few
    lines: tuple[str, ...] = ()


class RecordHit(msgspec.Struct, frozen=True):
    """`type:report` or `type:record`: what is kept about a source, in fields."""

    id: str
    name: str
    fields: dict[str, Any]
    #: id of the source it is about, if any
    source: str = ""
    score: float = 0.0


class RecordPage(msgspec.Struct, frozen=True):
    records: list[RecordHit]
    #: how many match in all
    total: int
    next_page: str = ""


class Facet(msgspec.Struct, frozen=True):
    name: str
    files: int


class Facets(msgspec.Struct, frozen=True):
    """What the files that were looked at are, most frequent first."""

    languages: list[Facet]
    sources: list[Facet]
    #: how many were looked at
    files: int
    #: these are all that match
    exact: bool


class SearchAnswer(msgspec.Struct, frozen=True):
    hits: list[Hit]
    #: matching lines in `hits`
    lines: int
    #: there may be more: the line limit or the deadline ended the search
    partial: bool
    seconds: float
    #: matches in all; not exact: there are at least so many
    counted: Counted = Counted()
    #: give it back as `page` for what follows; empty at the end
    next_page: str = ""
    #: with `type:repo`
    sources: list[SourceHit] = []
    #: with `type:report` and `type:record`
    records: list[RecordHit] = []
    #: with `type:commit`, newest first
    commits: list[CommitHit] = []
    #: when asked for
    facets: Facets | None = None


class SearchSummary(msgspec.Struct, frozen=True):
    """The last of a stream of hits."""

    files: int
    lines: int
    partial: bool
    seconds: float
    counted: Counted = Counted()


class Completion(msgspec.Struct, frozen=True):
    """`text` may stand in the query instead of its characters from `start` to `end`."""

    text: str
    start: int
    end: int
    about: str = ""


class Completions(msgspec.Struct, frozen=True):
    completions: list[Completion]


# Searches that are kept: when a change brings new matches, they are told.


class SavedSearch(msgspec.Struct, frozen=True):
    name: str
    query: str
    #: where new matches are told
    topic: str
    #: who saved it
    owner: str
    #: tells also what matches when a source is indexed for the first time
    first: bool
    created_at: float


class SearchSpec(msgspec.Struct, frozen=True):
    query: str
    #: empty: `skep.searches`
    topic: str = ""
    first: bool = False


class Searches(msgspec.Struct, frozen=True):
    searches: list[SavedSearch]


class NewMatches(msgspec.Struct, frozen=True):
    """A message on the topic of a saved search: what a change brought to one file."""

    id: str
    #: its name
    search: str
    query: str
    #: the file with the lines that did not match before; its `more`: there are others of them
    hit: Hit
    at: float
    #: more files of this change match than are told
    more: bool = False
