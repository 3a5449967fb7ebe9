"""What is asked of an index and what it answers. A query is a tree over whole files; lines show why a file matched."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import msgspec

from skep.base.errors import BadQuery

#: "any": content or path; "symbol": the name of something defined in the file; "branch": a branch that has the file;
#: "author": of commits, which no index holds
Field = Literal["content", "path", "any", "symbol", "source", "branch", "author"]

#: what a file is besides its language; one bit each
TEST, VENDORED, GENERATED = 1, 2, 4


class Term(msgspec.Struct, frozen=True, tag="term"):
    """A pattern that must occur on some line of the content, or in whatever else the field says."""

    field: Field
    #: RE2 syntax when `regex`, else the text itself
    pattern: str
    regex: bool
    #: case-sensitive; settled by the parser (`case:auto` = sensitive when the pattern has a capital)
    case: bool
    #: 1-based column in the query, for error messages
    column: int = 1


class And(msgspec.Struct, frozen=True, tag="and"):
    parts: tuple["Query", ...]


class Or(msgspec.Struct, frozen=True, tag="or"):
    parts: tuple["Query", ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    part: "Query"


class Within(msgspec.Struct, frozen=True, tag="within"):
    """A source term once it is resolved: the file belongs to one of these sources (by number)."""

    numbers: frozenset[int]


class Language(msgspec.Struct, frozen=True, tag="language"):
    """The file is written in it; the name as `skep.languages.languages` spells it."""

    name: str


Query = Term | And | Or | Not | Within | Language


def terms(query: Query) -> Iterator[Term]:
    match query:
        case Term():
            yield query
        case Not():
            yield from terms(query.part)
        case And() | Or():
            for part in query.parts:
                yield from terms(part)


def positive(query: Query, negated: bool = False) -> Iterator[Term]:
    """Those that are to match."""
    match query:
        case Term():
            if not negated:
                yield query
        case Not():
            yield from positive(query.part, not negated)
        case And() | Or():
            for part in query.parts:
                yield from positive(part, negated)


#: of a query
MOST_CHARACTERS = 10_000


def check_length(text: str) -> None:
    """Of a query, before it is sent anywhere, and before it is read."""
    if len(text) > MOST_CHARACTERS:
        said = f"the query has {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed"
        raise BadQuery(said, hint="look for a part of it", column=MOST_CHARACTERS + 1)


class Limits(msgspec.Struct, frozen=True):
    #: matching lines to return; a file that only its path or its branch brought in counts as one
    lines: int = 50
    #: matching lines of one file; 0: files are wanted, and none of their lines
    lines_per_file: int = 10_000
    #: so many lines are divided among the files that match, where not all of their lines fit in; 0: all of the best
    #: file, then all of the next
    share: int = 0
    #: seconds after which hits so far are returned as partial
    seconds: float = 10.0
    #: lines shown before and after each matching line
    context: int = 0
    #: best first, out of the first `look` matching lines; False: as they are found
    rank: bool = True
    look: int = 500
    #: go on counting, up to so many matching lines, after enough was found; 0: what was looked at is counted
    count: int = 0
    #: each hit says what its score is made of
    explain: bool = False
    #: files to return; 0: as many as the lines allow
    files: int = 0


class Counted(msgspec.Struct, frozen=True):
    """How much matches; not exact: at least so much."""

    files: int = 0
    lines: int = 0
    exact: bool = True


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    #: 1-based
    number: int
    #: 1-based byte column of the first match, as `rg --column` counts
    column: int
    #: the line without its end, invalid bytes replaced, cut around the match when very long
    text: str
    #: matches as character ranges of `text`
    ranges: tuple[tuple[int, int], ...]
    #: the lines around it, as many as were asked for
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    #: "function", "class", …: a match covers the name of something that is defined here
    symbol: str = ""


class Reason(msgspec.Struct, frozen=True):
    """A part of a score."""

    name: str
    points: float


class FileHit(msgspec.Struct, frozen=True):
    #: number of the source
    source: int
    path: str
    #: id of the git blob
    blob: str
    lines: tuple[Line, ...]
    #: this file has more matching lines than were returned
    more: bool = False
    #: empty: not known
    language: str = ""
    #: TEST, VENDORED, GENERATED
    marks: int = 0
    #: bit n: the file is so on the n-th tip of its source's standing
    branches: int = 1
    score: float = 0.0
    #: only when asked to explain
    why: tuple[Reason, ...] = ()
    #: what terms matched of the path, as character ranges of it
    path_ranges: tuple[tuple[int, int], ...] = ()


class Document(msgspec.Struct, frozen=True):
    """One file of one source as it goes into an index."""

    path: bytes
    blob: str
    content: bytes
    language: str = ""
    marks: int = 0
    #: bit n: the n-th tip of the delta has it
    branches: int = 1


class ShardInfo(msgspec.Struct, frozen=True):
    """One immutable shard directory, built aside and not yet adopted."""

    id: str
    folder: str
    documents: int
    bytes: int


#: one bit each in a document's `branches`
MOST_TIPS = 64


class BookInfo(msgspec.Struct, frozen=True):
    """One immutable book, not yet in the library of the aggregator."""

    id: str
    path: str
    blobs: int


class Tip(msgspec.Struct, frozen=True):
    """A branch or tag, by its short name, and the commit it stands at."""

    name: str
    commit: str


class Delta(msgspec.Struct, frozen=True):
    """What a source's index gains and loses by going from the tips in `base` to `tips`."""

    source: str
    number: int
    #: the default branch first; at most MOST_TIPS
    tips: tuple[Tip, ...]
    #: the same names in the same order; None: `shards` hold everything, whatever was there before is dropped
    base: tuple[Tip, ...] | None
    shards: tuple[ShardInfo, ...]
    #: paths whose older documents are dead: changed and deleted ones
    gone: tuple[bytes, ...] = ()
    #: by which rules it was made; an index made by others is not built upon
    rules: str = ""

    @property
    def commit(self) -> str:
        """Of the default branch."""
        return self.tips[0].commit


def digest(documents: Iterable[tuple[bytes, str, int]]) -> str:
    """Of the documents of a source (path, git blob, branches), in whatever order they come."""
    total = 0
    for path, blob, branches in documents:
        one = hashlib.blake2b(b"%s\0%s\0%d" % (path, blob.encode(), branches), digest_size=16).digest()
        total += int.from_bytes(one, "little")
    return f"{total & (1 << 128) - 1:032x}"


def digest_of_tips(tips: tuple[Tip, ...]) -> str:
    """Two indexes of a source with the same one are at the same commits."""
    return hashlib.blake2b(msgspec.json.encode(tips), digest_size=16).hexdigest()


class Fence(msgspec.Struct, frozen=True):
    """Who may still write the index of a source: adopted only while all of it is current."""

    source: str
    epoch: int
    #: when the upstream was asked for the indexed commit
    fetched_at: float


class Damage(msgspec.Struct, frozen=True):
    shard: str
    reason: str


#: what a request for an index wants: what changed, that too and the rest compared with the mirror, or all of it anew
Way = Literal["changed", "verify", "whole"]
WAYS: tuple[Way, ...] = get_args(Way)


class Where(msgspec.Struct, frozen=True, tag=True):
    """A worker asks from which tips on it should index a source."""

    source: str


class Stands(msgspec.Struct, frozen=True, tag=True):
    epoch: int
    #: None: there is no index
    base: tuple[Tip, ...] | None
    #: by which rules it was made
    rules: str = ""


class Verify(msgspec.Struct, frozen=True, tag=True):
    """A worker asks whether the index of a source holds what its mirror holds at the tips where the index stands."""

    source: str
    tips: tuple[Tip, ...]
    digest: str


class Verified(msgspec.Struct, frozen=True, tag=True):
    same: bool


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """A delta is ready for the aggregator. None: the source has nothing to index (it is empty)."""

    fence: Fence
    delta: Delta | None


class Adopted(msgspec.Struct, frozen=True, tag=True):
    #: False: the index has moved on, the delta is of no use
    done: bool


#: the file of a given folder that says what is in it
GIVEN = "given"


class Given(msgspec.Struct, frozen=True):
    """What a worker made for an aggregator that asked."""

    #: None: there is nothing to index
    delta: Delta | None
    #: when the upstream was asked for what is in it
    fetched_at: float
    books: tuple[BookInfo, ...] = ()


IndexRequest = Where | Verify | Adopt
IndexAnswer = Stands | Verified | Adopted
