"""RE2 syntax as a small tree, for planning. A pattern that holds anything not understood here is simply not planned.

The tree may match more than the pattern does (a Unicode class becomes "any character"), never less.
"""

from dataclasses import dataclass

NEWLINE = 1 << 10
ASCII = (1 << 128) - 1
#: characters outside ASCII that a letter also stands for when case is ignored, and the other way round
_KELVIN, _LONG_S = 0x212A, 0x17F


class NotUnderstood(Exception):
    """The pattern may be fine; it is just not planned."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    #: bit per ASCII character; exact
    ascii: int
    #: the others; None: any of them
    others: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Cat:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """Matches between characters: `^`, `$`, `\\b`, `\\B`."""

    kind: str


Node = Chars | Cat | Alt | Repeat | Edge


def bits(text: str) -> int:
    return sum(1 << ord(char) for char in set(text))


_DIGIT = bits("0123456789")
_LOWER = bits("abcdefghijklmnopqrstuvwxyz")
_UPPER = _LOWER >> 32
_WORD = _DIGIT | _LOWER | _UPPER | bits("_")
_SPACE = bits("\t\n\f\r ")
_PRINT = sum(1 << code for code in range(32, 127))
PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
POSIX = {
    "alnum": _DIGIT | _LOWER | _UPPER,
    "alpha": _LOWER | _UPPER,
    "ascii": ASCII,
    "blank": bits("\t "),
    "cntrl": ASCII & ~_PRINT,
    "digit": _DIGIT,
    "graph": _PRINT & ~bits(" "),
    "lower": _LOWER,
    "print": _PRINT,
    "punct": _PRINT & ~(_DIGIT | _LOWER | _UPPER | bits(" ")),
    "space": _SPACE | bits("\v"),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGIT | bits("abcdefABCDEF"),
}
ANY = Chars(ASCII & ~NEWLINE, None)


def fold(mask: int) -> int:
    """The ASCII set with both cases of every letter in it."""
    return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32


class CharSet:
    """Gathers the members of a class, exactly as far as ASCII goes."""

    def __init__(self, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._ascii = 0
        self._others: set[str] | None = set()

    def add(self, low: int, high: int) -> None:
        mask = sum(1 << code for code in range(low, min(high, 127) + 1))
        if high > 127:
            self._add_others(low, high)
        if self._ignore_case:
            mask |= bits("s") if low <= _LONG_S <= high else 0
            mask |= bits("k") if low <= _KELVIN <= high else 0
            mask = fold(mask)
            self._add_others(_LONG_S, _LONG_S, mask & bits("s"))
            self._add_others(_KELVIN, _KELVIN, mask & bits("k"))
        self._ascii |= mask

    def _add_others(self, low: int, high: int, wanted: int = 1) -> None:
        if not wanted or self._others is None:
            return
        if high != low or (self._ignore_case and high not in (_LONG_S, _KELVIN)):
            self._others = None
        else:
            self._others.add(chr(high))

    def add_named(self, mask: int, negated: bool) -> None:
        """A named class such as `\\w`. Ignoring case, RE2 closes it over case first and negates it then."""
        if self._ignore_case:
            mask = fold(mask)
        if negated or (self._ignore_case and mask & bits("ks")):
            self._others = None
        self._ascii |= ASCII & ~mask if negated else mask

    def done(self, negated: bool) -> Chars:
        if negated:
            return Chars(ASCII & ~self._ascii & ~NEWLINE, None)
        return Chars(self._ascii & ~NEWLINE, None if self._others is None else frozenset(self._others))


def char(code: int, ignore_case: bool) -> Chars:
    chars = CharSet(ignore_case)
    chars.add(code, code)
    return chars.done(negated=False)


def literal(text: str, ignore_case: bool) -> Node:
    return Cat(tuple(char(ord(c), ignore_case) for c in text))
