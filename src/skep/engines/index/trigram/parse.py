"""Reads RE2 patterns into the tree of `syntax`. RE2 itself has accepted the pattern before."""

import re
from dataclasses import dataclass, replace
from typing import Final

from skep.engines.index.trigram.syntax import (
    ANY,
    PERL,
    POSIX,
    Alt,
    Cat,
    Chars,
    CharSet,
    Edge,
    Node,
    NotUnderstood,
    Repeat,
    char,
)

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
