"""What a document must hold for a pattern to match in it: trigrams, combined by All and Some."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skep.engines.index.trigram.keys import FOLD, literal_keys
from skep.engines.index.trigram.syntax import Alt, Cat, Chars, Edge, Node, Repeat

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
