"""Where a term matches: which lines of a text, and where on a line."""

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import NamedTuple, Protocol

from skep.engines.index.trigram.plan import Plan

#: matches shown on one line
MOST_SPANS = 100
#: matching lines of one document: beyond them it is not read
MOST_LINES = 20_000

Span = tuple[int, int]
Text = bytes | mmap
#: raises when the search has to end
Watch = Callable[[], None]


class Matches(NamedTuple):
    """The matching lines of a text in their order: where the first match on each starts and ends, and the line ends."""

    starts: list[int]
    ends: list[int]
    lines: list[int]
    #: after so many it is enough; unless told otherwise, more than several documents that are read at once can have
    most: int = 1 << 20

    def add(self, start: int, end: int, line: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lines.append(line)


class Finder(Protocol):
    """Used by one search at a time, and so by one thread."""

    plan: Plan | None
    #: a line was too long to be matched to its end; who wants to know sets it back
    cut: bool

    def find(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        """Add the first matches on the lines of these runs, each of whose lines ends with a newline."""
        ...

    def matches(self, line: bytes) -> bool: ...

    def spans(self, line: bytes) -> list[Span]:
        """The matches on one line; the first may be empty, the others are not."""
        ...
