"""The names that documents define, by where they are in a shard's content."""

import numpy as np

from skep.engines.index.books import KINDS, Books
from skep.engines.index.ranking import DEFINITION, MEMBER, PART
from skep.engines.index.trigram.match import Finder, Matches, Watch
from skep.engines.index.trigram.postings import Ids, Mask
from skep.engines.index.trigram.shard import Shard

#: how good it is to match the whole name of a definition, by its kind
_COVERED = np.array([MEMBER if kind in ("field", "variable", "module") else DEFINITION for kind in KINDS])


class Definitions:
    def __init__(self, books: Books, shard: Shard, documents: Ids) -> None:
        self._shard = shard
        found = books.of(shard.blobs[documents])
        firsts, lasts = shard.spans(documents)
        starts = firsts[found.blob] + found.at
        ends = starts + found.size
        inside = ends <= lasts[found.blob]
        order = np.argsort(starts[inside], kind="stable")
        #: in the content, ascending
        self.starts: Ids = starts[inside][order]
        self.ends: Ids = ends[inside][order]
        self._kinds = found.kind[inside][order]

    def touched(self, starts: Ids, ends: Ids, kinds: Ids) -> tuple[Ids, Ids]:
        """Of each match: the definition whose name it touches, -1 for none; and how good that makes it, if better."""
        if not len(self.starts):
            return np.full(len(starts), -1), kinds
        nth = self.starts.searchsorted(ends) - 1
        touches = (nth >= 0) & (self.ends[nth] > starts)
        covers = touches & (self.starts[nth] >= starts) & (self.ends[nth] <= ends)
        better = np.where(covers, _COVERED[self._kinds[nth]], np.where(touches, PART, 0))
        return np.where(touches, nth, -1), np.maximum(kinds, better)

    def named(self, nth: Ids, starts: Ids, ends: Ids) -> Mask:
        """Which of these are the name of that definition, and no mere field or variable; -1: of none."""
        if not len(self.starts):
            return np.zeros(len(nth), bool)
        is_good = (nth >= 0) & (_COVERED[self._kinds[nth]] == DEFINITION)
        named: Mask = is_good & (self.starts[nth] == starts) & (self.ends[nth] == ends)
        return named

    def at(self, nth: int) -> tuple[int, int, str]:
        """Where its name starts and ends, and its kind."""
        return int(self.starts[nth]), int(self.ends[nth]), KINDS[int(self._kinds[nth])]

    def find(self, finder: Finder, watch: Watch) -> Matches:
        """Where the names of definitions match, each name taken as a line of its own."""
        sizes = self.ends - self.starts + 1
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(self.starts - (ends - sizes), sizes)
        names = np.frombuffer(self._shard.content, np.uint8)[places]
        names[ends - 1] = ord("\n")
        text = names.tobytes()
        found = Matches([], [], [])
        finder.find(text, [(0, len(text))], watch, found)
        chosen = np.searchsorted(ends, found.starts, side="right")
        moved = self.starts[chosen] - (ends - sizes)[chosen]
        made = Matches([], [], [])
        for start, stop in zip((moved + found.starts).tolist(), (moved + found.ends).tolist(), strict=True):
            line = self._shard.content.find(b"\n", stop)
            if not made.lines or made.lines[-1] != line:
                made.add(start, stop, line)
        return made
