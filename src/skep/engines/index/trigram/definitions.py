"""The names that documents define, by where they are in a shard's content."""

import numpy as np

from skep.engines.index.books import KINDS, Books
from skep.engines.index.trigram.match import Finder, Matches, Watch
from skep.engines.index.trigram.postings import Ids, Mask
from skep.engines.index.trigram.shard import Shard


class Definitions:
    def __init__(self, books: Books, shard: Shard, documents: Ids) -> None:
        self._shard = shard
        found = books.of(shard.blobs[documents])
        starts = shard.offsets[documents][found.blob] + found.at
        ends = starts + found.size
        inside = ends <= shard.offsets[documents + 1][found.blob]
        order = np.argsort(starts[inside], kind="stable")
        #: in the content, ascending
        self.starts: Ids = starts[inside][order]
        self.ends: Ids = ends[inside][order]
        self._kinds = found.kind[inside][order]

    def touched(self, matches: Matches) -> tuple[Ids, Mask]:
        """Of each match: the definition whose name it touches, -1 for none; and whether it covers all of the name."""
        starts, ends = np.array(matches.starts, np.int64), np.array(matches.ends, np.int64)
        if not len(self.starts):
            return np.full(len(starts), -1), np.zeros(len(starts), bool)
        nth = np.searchsorted(self.starts, ends) - 1
        touches = (nth >= 0) & (self.ends[nth] > starts)
        covers = touches & (self.starts[nth] >= starts) & (self.ends[nth] <= ends)
        return np.where(touches, nth, -1), covers

    def kind(self, nth: int) -> str:
        return KINDS[int(self._kinds[nth])]

    def find(self, finder: Finder, watch: Watch) -> Matches:
        """The definitions whose names match, each name taken as a line of its own."""
        sizes = self.ends - self.starts + 1
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(self.starts - (ends - sizes), sizes)
        names = np.frombuffer(self._shard.content, np.uint8)[places]
        names[ends - 1] = ord("\n")
        text = names.tobytes()
        found = Matches([], [], [])
        finder.find(text, 0, len(text), watch, found)
        chosen = np.searchsorted(ends, found.starts, side="right")
        made = Matches([], [], [])
        for start, stop in zip(self.starts[chosen].tolist(), self.ends[chosen].tolist(), strict=True):
            line = self._shard.content.find(b"\n", stop)
            if not made.lines or made.lines[-1] != line:
                made.add(start, stop, line)
        return made
