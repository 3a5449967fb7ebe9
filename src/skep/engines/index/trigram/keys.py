"""Trigram keys: three bytes, each folded to one of 64 classes, make a number of 18 bits.

Letters lose their case, so one index serves searches with and without it; rare bytes share classes, which only means
a few more candidates to read.
"""

import numpy as np
from numpy.typing import NDArray

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
