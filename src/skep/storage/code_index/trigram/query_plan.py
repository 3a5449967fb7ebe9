"""What a document must hold for a pattern to match in it: trigrams, combined by All and Some."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skep.storage.code_index.trigram.regex import ASCII, NEWLINE, Alt, Cat, Chars, Edge, Node, Repeat

# Trigram keys: three bytes, each folded to one of 64 classes, make a number of 18 bits.
#
# Letters lose their case, so one index serves searches with and without it; rare bytes share classes, which only means
# a few more candidates to read.

KEYS = 1 << 18
#: bytes whose keys are made at once: they need eleven times the memory, and should stay near the processor
_PIECE = 1 << 17
_SHORT = 1 << 15
_PUNCTUATION = b"\"#&'()*+,-./:;<=>[]{}!"


def _classes() -> bytes:
    table = bytearray(byte & 63 for byte in range(256))
    for byte in range(128):
        table[byte] = 63
    for letter in range(26):
        table[ord("a") + letter] = table[ord("A") + letter] = letter
    for digit in range(10):
        table[ord("0") + digit] = 26 + digit
    for number, byte in enumerate(_PUNCTUATION):
        table[byte] = 36 + number
    for number, group in enumerate((b"_", b" ", b"\t", b"\r\n", b"%|"), start=36 + len(_PUNCTUATION)):
        for byte in group:
            table[byte] = number
    return bytes(table)


FOLD = _classes()


class Distinct:
    """Finds the distinct keys of one document after the other, several times faster than sorting would."""

    def __init__(self) -> None:
        self._seen = np.zeros(KEYS, bool)
        self._last = np.zeros(KEYS, np.int32)
        self._places = np.arange(_SHORT, dtype=np.int32)

    def keys(self, content: bytes) -> NDArray[np.intp]:
        """In any order."""
        return self._of_short(content) if 2 < len(content) <= _SHORT else self._of_long(content)

    def _of_short(self, content: bytes) -> NDArray[np.intp]:
        """Those that stand last where they stand: looking through all keys that there are would take longer."""
        keys = text_keys(content)
        places = self._places[: len(keys)]
        self._last[keys] = places
        return keys[np.flatnonzero(self._last.take(keys) == places)]

    def _of_long(self, content: bytes) -> NDArray[np.intp]:
        for start in range(0, len(content), _PIECE):
            self._seen[text_keys(content[start : start + _PIECE + 2])] = True
        distinct = np.flatnonzero(self._seen)
        self._seen[distinct] = False
        return distinct


def text_keys(text: bytes) -> NDArray[np.intp]:
    """The key that begins at each byte but the last two."""
    wide = np.frombuffer(text.translate(FOLD), np.uint8).astype(np.uint16)
    pairs = wide[:-2] << np.uint16(6)
    pairs |= wide[1:-1]
    keys = pairs.astype(np.intp)
    keys <<= 6
    keys |= wide[2:]
    return keys


def literal_keys(folded: bytes) -> NDArray[np.uint32]:
    """The keys every document has that holds this literal (already folded)."""
    values = {folded[i] << 12 | folded[i + 1] << 6 | folded[i + 2] for i in range(len(folded) - 2)}
    return np.array(sorted(values), np.uint32)


#: alternatives one run of characters may have before it is cut in two
_MOST = 24
#: things that are looked up of all that a long pattern needs: those with few alternatives, since more say little more
_MOST_NEEDS = 16
#: characters a class may have to be taken as so many alternatives
_MOST_CHARS = 16


@dataclass(frozen=True, eq=False, slots=True)
class Grams:
    """Every one of these keys."""

    keys: NDArray[np.uint32]


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """Two bytes: some key that begins with them. Each text ends with a newline, so a third byte follows always."""

    #: the lowest such key
    first: int


@dataclass(frozen=True, eq=False, slots=True)
class All:
    parts: tuple["Plan", ...]


@dataclass(frozen=True, eq=False, slots=True)
class Some:
    """At least one of these; none at all when there are none."""

    parts: tuple["Plan", ...]


Plan = Grams | Pair | All | Some
_Texts = frozenset[bytes]
_NOTHING: _Texts = frozenset((b"",))


def plan(node: Node) -> Plan | None:
    """None: any document may match."""
    return _need(node, _exact(node))


def _exact(node: Node) -> _Texts | None:
    """All the texts (folded) that the node can match, when they are few."""
    match node:
        case Edge():
            return _NOTHING
        case Chars():
            return _exact_chars(node)
        case Cat(parts):
            texts: _Texts | None = _NOTHING
            for part in parts:
                texts = _joined(texts, _exact(part))
            return texts
        case Alt(parts):
            return _united([_exact(part) for part in parts])
        case Repeat(part, low, high):
            return None if high is None or high > 3 else _exact_repeat(part, low, high)


def _exact_repeat(part: Node, low: int, high: int) -> _Texts | None:
    once = _exact(part)
    powers: list[_Texts | None] = [_NOTHING]
    for _ in range(high):
        powers.append(_joined(powers[-1], once))
    return _united(powers[low:])


@lru_cache(4096)
def _exact_chars(chars: Chars) -> _Texts | None:
    if chars.others is None or chars.ascii.bit_count() > 2 * _MOST_CHARS:
        return None
    singles = {bytes((code,)).translate(FOLD) for code in range(128) if chars.ascii >> code & 1}
    singles |= {other.encode("utf-8", "surrogateescape").translate(FOLD) for other in chars.others}
    return frozenset(singles) if len(singles) <= _MOST_CHARS else None


def _joined(left: _Texts | None, right: _Texts | None) -> _Texts | None:
    if left is None or right is None or len(left) * len(right) > _MOST:
        return None
    return frozenset(a + b for a in left for b in right)


def _united(several: list[_Texts | None]) -> _Texts | None:
    if any(texts is None for texts in several):
        return None
    texts = frozenset().union(*(texts for texts in several if texts is not None))
    return texts if len(texts) <= _MOST else None


def _need(node: Node, exact: _Texts | None) -> Plan | None:
    if exact is not None:
        return _need_text(exact)
    match node:
        case Cat(parts):
            return _need_cat(parts)
        case Alt(parts):
            needs = [plan(part) for part in parts]
            return None if any(need is None for need in needs) else Some(tuple(_known(needs)))
        case Repeat(part, low, _):
            return plan(part) if low > 0 else None
        case _:
            return None


def _need_cat(parts: tuple[Node, ...]) -> Plan | None:
    """Neighbours with few texts make longer texts together; what breaks such a run is needed by itself."""
    needs: list[Plan | None] = []
    run: _Texts = _NOTHING
    for part in parts:
        exact = _exact(part)
        joined = _joined(run, exact)
        if joined is not None:
            run = joined
            continue
        needs.append(_need_text(run))
        run = exact if exact is not None else _NOTHING
        if exact is None:
            needs.append(plan(part))
    needs.append(_need_text(run))
    known = sorted(_known(needs), key=_alternatives)[:_MOST_NEEDS]
    return None if not known else known[0] if len(known) == 1 else All(tuple(known))


def _alternatives(need: Plan) -> int:
    return len(need.parts) if isinstance(need, Some) else 1


def _need_text(texts: _Texts) -> Plan | None:
    if any(len(text) < 2 for text in texts):
        return None
    needs = tuple(_need_one(text) for text in sorted(texts))
    return needs[0] if len(needs) == 1 else Some(needs)


def _need_one(text: bytes) -> Plan:
    return Pair(text[0] << 12 | text[1] << 6) if len(text) == 2 else Grams(literal_keys(text))


def _known(needs: list[Any]) -> list[Any]:
    return [need for need in needs if need is not None]


# A pattern for hyperscan that finds every line the real pattern may match, and perhaps a few more.
#
# It works on bytes, so that invalid UTF-8 is no special case, and ends each match at the line's end, so that hyperscan
# reports a line once however often the pattern occurs on it. RE2 then decides.

#: hyperscan's compile time grows with the size of the automaton; larger patterns are left to RE2
_MOST_STATES = 400


def prefilter(node: Node) -> bytes | None:
    """None: not worth it or not possible."""
    if _nullable(node) or _states(node) > _MOST_STATES:
        return None
    return b"(?:" + _expression(node) + b")[^\\n]*\\n"


def _nullable(node: Node) -> bool:
    match node:
        case Edge():
            return True
        case Chars():
            return False
        case Cat(parts):
            return all(map(_nullable, parts))
        case Alt(parts):
            return any(map(_nullable, parts))
        case Repeat(part, low, _):
            return low == 0 or _nullable(part)


def _states(node: Node) -> int:
    match node:
        case Edge():
            return 0
        case Chars():
            return 1
        case Cat(parts) | Alt(parts):
            return sum(map(_states, parts))
        case Repeat(part, low, high):
            return _states(part) * max(low, high or 0, 1)


def _expression(node: Node) -> bytes:
    match node:
        case Edge(kind):
            return kind.encode() if kind in "^$" else b""  # the others only narrow
        case Chars():
            return _bytes(node, 1, 1)
        case Cat(parts):
            return b"".join(map(_expression, parts))
        case Alt(parts):
            return b"(?:" + b"|".join(map(_expression, parts)) + b")"
        case Repeat(Chars() as chars, low, high):
            return _bytes(chars, low, high)
        case Repeat(part, low, high):
            return b"(?:" + _expression(part) + b")" + _times(low, high)


def _bytes(chars: Chars, low: int, high: int | None) -> bytes:
    """A character outside ASCII is up to four bytes; that they belong together is left to RE2."""
    if chars.others == frozenset():
        return _set(chars.ascii, wide=False) + _times(low, high)
    if chars.others and len(chars.others) == 1 and not chars.ascii:
        other = next(iter(chars.others)).encode("utf-8", "surrogateescape")
        return b"(?:" + b"".join(b"\\x%02x" % byte for byte in other) + b")" + _times(low, high)
    return _set(chars.ascii, wide=True) + _times(low, None if high is None else 4 * high)


def _set(mask: int, wide: bool) -> bytes:
    if wide and mask == ASCII & ~NEWLINE:
        return b"[^\\n]"
    if not wide and not mask:
        return b"[^\\x00-\\xff]"  # a newline, which no line holds
    if not wide and mask.bit_count() == 1:
        return b"\\x%02x" % (mask.bit_length() - 1)
    return b"[" + _ranges(mask) + (b"\\x80-\\xff" if wide else b"") + b"]"


def _ranges(mask: int) -> bytes:
    pieces: list[bytes] = []
    start = 0
    for code in range(129):
        if not mask >> code & 1:
            if start < code:
                pieces.append(b"\\x%02x-\\x%02x" % (start, code - 1))
            start = code + 1
    return b"".join(pieces)


def _times(low: int, high: int | None) -> bytes:
    if (low, high) == (1, 1):
        return b""
    return b"{%d,%s}" % (low, b"" if high is None else b"%d" % high)
