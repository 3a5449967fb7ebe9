"""Which hit is shown first. Pure: what an engine found out about a file goes in, points come out.

What is defined comes before what is used, a word before a part of one, a file of that name before a file of that
folder, code before what is written about it, and what people write before tests, copies and generated code. A source
may be set before others.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from skep.storage.code_index.model import GENERATED, TEST, VENDORED, Limits, Reason

#: how a match lies in its line; the higher the better
NONE, SUBSTRING, PREFIX, PART, WORD, MEMBER, DEFINITION = 0, *range(3, 15, 2)
#: so much worse is one with other capitals than the term has, where they do not count: even numbers
OTHER_CASE = 1
#: where in a path
FOLDER, BASENAME, STEM, WHOLE_NAME = 1, 2, 3, 4
#: marks that no index holds: what is written about code, and what shows how to use it
PROSE, EXAMPLE = 8, 16

_MATCH = {
    NONE: ("", 0.0),
    SUBSTRING: ("part of a word", 60.0),
    PREFIX: ("start of a word", 110.0),
    PART: ("part of a definition", 180.0),
    WORD: ("whole word", 200.0),
    MEMBER: ("definition of a field, variable or module", 320.0),
    DEFINITION: ("definition", 400.0),
}
_OTHER_CASE = -30.0
_PATH = {
    FOLDER: ("in a folder's name", 25.0),
    BASENAME: ("in the file's name", 80.0),
    STEM: ("the file's name", 160.0),
    WHOLE_NAME: ("the file's whole name", 320.0),
}
#: what a file of that name has at least, whatever its text says: more than uses can make up
_NAMED = 240.0
_MARKS = (
    (TEST, "test", -130.0),
    (VENDORED, "vendored", -150.0),
    (GENERATED, "generated", -150.0),
    (PROSE, "prose", -40.0),
    (EXAMPLE, "example", -40.0),
)
#: languages of prose
PROSES = frozenset(("AsciiDoc", "Markdown", "reStructuredText", "Roff", "Text"))
_EXAMPLE = re.compile(rb"(?:^|/)(?:examples?|samples?|demos?)/")
_NEAR, _ROW, _NAME, _WHOLE = 60.0, 100.0, 120.0, 150.0
_MANY, _HALF = 20.0, 8
#: of each number in a Near
NEAR_BITS = 4
MOST_NEAR = (1 << NEAR_BITS) - 1
#: lines of a file that are shown however many files there are
LEAST = 5


class Near(NamedTuple):
    """How many terms follow the one before them on a line, with at most a character between the two; 15 at most."""

    row: int = 0
    #: in the name of a definition
    name: int = 0
    #: the terms are all of its name
    whole: int = 0

    @staticmethod
    def of(number: int) -> "Near":
        """Out of a number that is the higher the better."""
        return Near(number & MOST_NEAR, number >> NEAR_BITS & MOST_NEAR, number >> 2 * NEAR_BITS)


class Facts(msgspec.Struct, frozen=True, gc=False):
    """Of one file, under one query."""

    #: the best match of each term in the text
    matches: tuple[int, ...]
    #: the best place in the path that a term matched; 0: none
    path: int = 0
    #: most terms that match on one line
    together: int = 1
    #: a Near, as a number: where they are nearest to each other
    near: int = 0
    #: matching lines
    lines: int = 0
    marks: int = 0
    #: by the priority of its source
    gain: int = 0


def parts(facts: Facts) -> list[tuple[str, float]]:
    """What the score is made of."""
    made: list[tuple[str, float]] = []
    terms = len(facts.matches)
    for match in facts.matches:
        if match:
            name, points = _MATCH[match | OTHER_CASE]
            made.append((name, points / terms))
            if not match & OTHER_CASE:
                made.append(("in another case", _OTHER_CASE / terms))
    if facts.path:
        name, points = _PATH[facts.path]
        in_text = sum([points for _, points in made])
        made.append((name, max(points, _NAMED - in_text) if facts.path >= STEM else points))
    if terms > 1:
        near = Near.of(facts.near)
        several = (
            ("together on a line", _NEAR, facts.together - 1),
            ("one after the other", _ROW, near.row),
            ("together in a definition", _NAME, near.name),
            ("together a definition", _WHOLE, near.whole),
        )
        made += [(name, points * count / (terms - 1)) for name, points, count in several if count > 0]
    if facts.lines > 1:
        made.append(("often", _MANY * facts.lines / (facts.lines + _HALF)))
    if facts.marks:
        made += [(name, points) for mark, name, points in _MARKS if facts.marks & mark]
    if facts.gain:
        made.append(("priority of its source", float(facts.gain)))
    return made


@lru_cache(1 << 14)  # many files are alike in this
def score(facts: Facts) -> float:
    return sum([points for _, points in parts(facts)])


def reasons(facts: Facts) -> tuple[Reason, ...]:
    return tuple(Reason(name, round(points, 2)) for name, points in parts(facts))


def per_file(sizes: Sequence[int], limits: Limits) -> int:
    """How many lines a file may have, of files with so many: where not all have room, what the files with few leave to
    the others is divided among them."""
    left, files = limits.share, len(sizes)
    if not left or sum(sizes) <= left:
        return limits.lines_per_file
    for size in sorted(sizes):
        if size * files > left:
            break
        left, files = left - size, files - 1
    return min(limits.lines_per_file, max(LEAST, left // files))


def path_place(path: bytes, start: int, end: int) -> int:
    """Where a match lies in a path. All of the name may have folders before it."""
    basename = path.rfind(b"/") + 1
    if end <= basename:
        return FOLDER
    if end == len(path) and start <= basename and path[max(0, start - 1) : start] in (b"", b"/"):
        return WHOLE_NAME
    stem, _, _ = path[basename:].partition(b".")
    return STEM if (start, end) == (basename, basename + len(stem)) else BASENAME


def is_example(path: bytes) -> bool:
    return _EXAMPLE.search(path) is not None
