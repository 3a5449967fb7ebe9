"""Which hit is shown first. Pure: what an engine found out about a file goes in, points come out.

What is defined comes before what is used, a word before a part of one, a file of that name before a file of that
folder, and what people write before tests, copies and generated code. A source may be set before others.
"""

from functools import lru_cache

import msgspec

from skep.model.search import GENERATED, TEST, VENDORED, Reason

#: how a match lies in its line or path; the higher the better
NONE, SUBSTRING, PREFIX, PART, WORD, DEFINITION = range(6)
#: where in a path
FOLDER, BASENAME, STEM = 1, 2, 3

_MATCH = {
    NONE: ("", 0.0),
    SUBSTRING: ("part of a word", 60.0),
    PREFIX: ("start of a word", 110.0),
    PART: ("part of a definition", 180.0),
    WORD: ("whole word", 200.0),
    DEFINITION: ("definition", 400.0),
}
_PATH = {FOLDER: ("in a folder's name", 25.0), BASENAME: ("in the file's name", 80.0), STEM: ("the file's name", 160.0)}
_MARKS = ((TEST, "test", -130.0), (VENDORED, "vendored", -150.0), (GENERATED, "generated", -150.0))
_NEAR = 60.0
_MANY, _HALF = 20.0, 8


class Facts(msgspec.Struct, frozen=True, gc=False):
    """Of one file, under one query."""

    #: the best match of each term in the text
    matches: tuple[int, ...]
    #: the best place in the path that a term matched; 0: none
    path: int = 0
    #: most terms that match on one line
    together: int = 1
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
            name, points = _MATCH[match]
            made.append((name, points / terms))
    if facts.path:
        made.append(_PATH[facts.path])
    if terms > 1 and facts.together > 1:
        made.append(("together on a line", _NEAR * (facts.together - 1) / (terms - 1)))
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


def path_place(path: bytes, start: int, end: int) -> int:
    """Where a match lies in a path."""
    basename = path.rfind(b"/") + 1
    if end <= basename:
        return FOLDER
    stem, _, _ = path[basename:].partition(b".")
    return STEM if (start, end) in ((basename, basename + len(stem)), (basename, len(path))) else BASENAME
