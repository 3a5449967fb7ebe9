"""Reads RE2 patterns into the tree of `syntax`. RE2 itself has accepted the pattern before."""

import re
from dataclasses import dataclass, replace
from typing import Final

# RE2 syntax as a small tree, for planning. A pattern that holds anything not understood here is simply not planned.
#
# The tree may match more than the pattern does (a Unicode class becomes "any character"), never less.

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


_SIMPLE: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
# these run over the pattern's own text with fixed, linear expressions; they never see what is searched
_COUNTS = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_GROUP = re.compile(r"\?(?:P?<\w+>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))", re.ASCII)
_HEX = re.compile(r"x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_UNICODE = re.compile(r"[pP](?:\{\^?\w+\}|[A-Z])", re.ASCII)
_NAMED = re.compile(r"\[:(\^?)([a-z]+):\]")


@dataclass(frozen=True, slots=True)
class Flags:
    ignore_case: bool
    multi_line: bool = True


@dataclass(frozen=True, slots=True)
class Parsed:
    node: Node
    #: holds `\\A`, `\\z` or their like, which mean the line only when each line is matched by itself
    by_line: bool


def parse(pattern: str, ignore_case: bool) -> Parsed:
    parser = _Parser(pattern)
    node = parser.alternatives(Flags(ignore_case), depth=0)
    if parser.at < len(pattern):
        raise NotUnderstood
    return Parsed(node, parser.by_line)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.by_line = False

    def alternatives(self, flags: Flags, depth: int) -> Node:
        """Up to the end of the group. Flags set inside stay for the alternatives that follow."""
        if depth > 50:
            raise NotUnderstood
        branches: list[list[Node]] = [[]]
        repeatable = False
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self._take("|"):
                branches.append([])
                repeatable = False
            elif (counts := self._counts()) is not None:
                if not repeatable:
                    raise NotUnderstood
                branches[-1][-1] = Repeat(branches[-1][-1], *counts)
                repeatable = False
            elif self._take("("):
                inner = self._group(flags)
                if self.pattern[self.at - 1] == ")":
                    flags, repeatable = inner, False
                    continue
                branches[-1].append(self.alternatives(inner, depth + 1))
                if not self._take(")"):
                    raise NotUnderstood
                repeatable = True
            elif self.pattern.startswith("\\Q", self.at):
                branches[-1] += self._quoted(flags)
                repeatable = False
            else:
                branches[-1].append(self._atom(flags))
                repeatable = True
        nodes = tuple(Cat(tuple(parts)) for parts in branches)
        return nodes[0] if len(nodes) == 1 else Alt(nodes)

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def _counts(self) -> tuple[int, int | None] | None:
        """A repetition, with the `?` that makes it lazy: that changes how much matches, not whether."""
        counts: tuple[int, int | None]
        if self._take("*"):
            counts = (0, None)
        elif self._take("+"):
            counts = (1, None)
        elif self._take("?"):
            counts = (0, 1)
        elif found := self._match(_COUNTS):
            low = int(found[1])
            counts = (low, low if not found[2] else int(found[3]) if found[3] else None)
        else:
            return None
        self._take("?")
        return counts

    def _group(self, flags: Flags) -> Flags:
        """After `(`: the flags that hold inside, or, when `)` was read already, from here on."""
        if not self.pattern.startswith("?", self.at):
            return flags
        found = self._match(_GROUP)
        if not found:
            raise NotUnderstood
        on, _, off = (found["flags"] or "").partition("-")
        if "i" in on + off:
            flags = replace(flags, ignore_case="i" in on)
        if "m" in on + off:
            flags = replace(flags, multi_line="m" in on)
        return flags

    def _quoted(self, flags: Flags) -> list[Node]:
        start = self.at + 2
        end = self.pattern.find("\\E", start)
        text = self.pattern[start:] if end < 0 else self.pattern[start:end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return [char(ord(c), flags.ignore_case) for c in text]

    def _atom(self, flags: Flags) -> Node:
        first = self.pattern[self.at]
        self.at += 1
        if first == ".":
            return ANY
        if first in "^$":
            self.by_line |= not flags.multi_line
            return Edge(first)
        if first == "[":
            return self._class(flags)
        if first == "\\":
            return self._escape(flags)
        return char(ord(first), flags.ignore_case)

    def _escape(self, flags: Flags) -> Node:
        if self._match(_UNICODE):
            return ANY
        kind = self.pattern[self.at : self.at + 1]
        if kind and kind in "bBAz":
            self.at += 1
            self.by_line |= kind in "Az"
            return Edge("\\" + kind)
        chars = CharSet(flags.ignore_case)
        if not self._perl(chars):
            code = self._escaped_code()
            chars.add(code, code)
        return chars.done(negated=False)

    def _perl(self, chars: CharSet) -> bool:
        kind = self.pattern[self.at : self.at + 1]
        if not kind or kind.lower() not in PERL:
            return False
        self.at += 1
        chars.add_named(PERL[kind.lower()], negated=kind.isupper())
        return True

    def _escaped_code(self) -> int:
        """After a backslash: the character it stands for."""
        if found := self._match(_HEX):
            return int(found[1] or found[2], 16)
        if found := self._match(_OCTAL):
            return int(found[0], 8)
        kind = self.pattern[self.at : self.at + 1]
        self.at += 1
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind.isascii() and kind and not kind.isalnum():
            return ord(kind)
        raise NotUnderstood

    def _class(self, flags: Flags) -> Chars:
        negated = self._take("^")
        chars = CharSet(flags.ignore_case)
        first = True
        while first or not self._take("]"):
            first = False
            if self.at >= len(self.pattern):
                raise NotUnderstood
            self._member(chars)
        return chars.done(negated)

    def _member(self, chars: CharSet) -> None:
        if named := self._match(_NAMED):
            if named[2] not in POSIX:
                raise NotUnderstood
            chars.add_named(POSIX[named[2]], negated=bool(named[1]))
            return
        if self.pattern.startswith("\\", self.at):
            if self.pattern[self.at + 1 : self.at + 2] in ("p", "P"):
                raise NotUnderstood  # its ASCII part is not known here, and negating a guess would be wrong
            if self.pattern[self.at + 1 : self.at + 2].lower() in PERL:
                self.at += 1
                self._perl(chars)
                return
        low = self._class_code()
        high = low
        if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
            self.at += 1
            high = self._class_code()
        chars.add(low, high)

    def _class_code(self) -> int:
        if self._take("\\"):
            return self._escaped_code()
        if self.at >= len(self.pattern):
            raise NotUnderstood
        self.at += 1
        return ord(self.pattern[self.at - 1])
