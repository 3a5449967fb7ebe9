"""A pattern for hyperscan that finds every line the real pattern may match, and perhaps a few more.

It works on bytes, so that invalid UTF-8 is no special case, and ends each match at the line's end, so that hyperscan
reports a line once however often the pattern occurs on it. RE2 then decides.
"""

from skep.engines.index.trigram.syntax import ASCII, NEWLINE, Alt, Cat, Chars, Edge, Node, Repeat

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
