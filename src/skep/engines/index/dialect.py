"""The pattern language of every index: RE2, Unicode, line by line. Users' patterns run here and nowhere else.

Python's own `re` would let one pattern occupy a core for ever; RE2 is linear in the text whatever it is asked.
"""

from collections.abc import Callable, Sequence
from functools import partial
from mmap import mmap
from typing import Any

import re2

from skep.errors import BadQuery
from skep.model.search import Term

#: `^` and `$` mean the line's start and end
_PREFIX = b"(?m)"
#: bytes RE2 may spend on one pattern; also bounds its automaton, and so the time for one byte of text
_MEMORY = 2 << 20

_HINTS = (
    ("invalid perl operator: (?", "look-around is not part of RE2; use a second word or -word instead"),
    ("invalid escape sequence", "RE2 knows no such escape and no back-references; write \\\\ for a backslash"),
    ("missing )", "close the group, or write \\( for the character"),
    ("unexpected )", "open the group, or write \\) for the character"),
    ("missing ]", "close the class, or write \\[ for the character"),
    ("no argument for repetition", "write something before it, or a backslash for the character itself"),
    ("bad repetition", "one repetition is enough; group with (?:…) to repeat a repetition"),
    ("invalid repetition size", "at most 1000 repetitions, nested ones multiplied"),
    ("trailing \\", "write \\\\ for a backslash"),
    ("pattern too large", "make the repetitions smaller"),
)


def encode(term: Term) -> bytes:
    """The pattern's bytes; bytes that came in as lone surrogates go out as they were."""
    try:
        return term.pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadQuery("the pattern is not valid Unicode", column=term.column + error.start) from None


def compile_term(term: Term) -> Any:
    """The term as an RE2 object that never matches across lines; BadQuery points at what is wrong with it."""
    pattern = encode(term)
    if not term.regex:
        pattern = re2.escape(pattern)
    try:
        return re2.compile(_PREFIX + pattern, _options(term))
    except re2.error as error:
        raise _bad(term, error.args[0]) from None


def searcher(regex: Any) -> Callable[[bytes | mmap, int, int], Sequence[tuple[int, int]]]:
    """Where a compiled term matches first, from here to there in a text, as the first of a sequence; -1: nowhere. Asked
    of RE2 itself: what its Python wraps around a match on a line takes longer than finding it."""
    return partial(regex._regexp.Match, re2._Anchor.UNANCHORED)


def _options(term: Term) -> Any:
    options = re2.Options()
    options.case_sensitive = term.case
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


def _bad(term: Term, said: bytes | str) -> BadQuery:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    reason, _, piece = text.partition(": ")
    piece = piece.removeprefix(_PREFIX.decode())
    text = f"{reason}: {piece}" if piece else reason
    found = term.pattern.rfind(piece) if reason == "trailing \\" else term.pattern.find(piece)
    if reason == "missing )":
        found = _unclosed(term.pattern)
    hint = next((hint for start, hint in _HINTS if text.startswith(start)), "see the RE2 syntax for what is possible")
    return BadQuery(f"invalid regular expression: {text}", hint=hint, column=term.column + max(found, 0))


def _unclosed(pattern: str) -> int:
    """Where the first group begins that nothing closes."""
    opened: list[int] = []
    in_class = escaped = False
    for at, char in enumerate(pattern):
        if escaped or char == "\\":
            escaped = not escaped
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            opened.append(at)
        elif char == ")" and opened:
            opened.pop()
    return opened[0] if opened else 0
