"""Hyperscan in front of whatever decides about a line."""

from collections.abc import Iterator, Sequence
from typing import Any

from skep.engines.index.trigram.match import Matches, Span, Text, Watch

hyperscan: Any
try:
    import hyperscan
except ImportError:  # no wheel for this machine: RE2 does it all
    hyperscan = None

#: bytes hyperscan is given at once
_PIECE = 1 << 18


class Scanned:
    """Whatever decides about a line: on much text hyperscan says which are worth looking at."""

    cut = False

    def __init__(self) -> None:
        #: not compiled yet; None: it is, or cannot be
        self._prefilter: bytes | None = None
        self._scanner: Any = None

    def _settle(self, text: Text, ends: Sequence[int], found: Matches) -> None:
        """Of the lines that end there, keep those that match."""
        raise NotImplementedError

    def _compile(self) -> None:
        if self._prefilter is None or hyperscan is None:
            return
        expression, self._prefilter = self._prefilter, None
        scanner = hyperscan.Database()
        try:
            scanner.compile(expressions=[expression], flags=[hyperscan.HS_FLAG_MULTILINE])
        except hyperscan.error:
            return  # beyond what hyperscan takes on
        self._scanner = scanner

    def _scan(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        """In pieces, because hyperscan goes to the end of what it is given, wanted or not."""
        at = read = 0
        ends: list[int] = []

        def note(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(at + end - 1)

        scan = self._scanner.scan
        with memoryview(text) as view:
            for at, stop in _pieces(text, runs):
                scan(view[at:stop], match_event_handler=note)
                if ends:
                    self._settle(text, ends, found)
                    ends.clear()
                    if len(found.lines) >= found.most:
                        return
                read += stop - at
                if read >= _PIECE:
                    read = 0
                    watch()


def _pieces(text: Text, runs: Sequence[Span]) -> Iterator[Span]:
    for start, end in runs:
        at = start
        while end - at > _PIECE:
            stop = text.find(b"\n", at + _PIECE - 1, end) + 1 or end  # a damaged text may lack its last newline
            yield at, stop
            at = stop
        if at < end:
            yield at, end
