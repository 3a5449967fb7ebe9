"""What a reading found of each file, small enough to keep hundreds of them: only what is shown is cut out later."""

from collections.abc import Iterable, Iterator

from skep.engines.index.ranking import Facts, path_place, score
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.reading import Reading
from skep.engines.index.trigram.shard import Shard
from skep.model.search import Term

#: a line's points are the kinds of the matches on it, and this for each term that matches there
_TERM = 1000


class Light:
    """A file that matches, and which of its lines do."""

    __slots__ = ("document", "facts", "points", "score", "shard")

    def __init__(self, shard: Shard, document: int, points: dict[int, int], facts: Facts) -> None:
        self.shard = shard
        self.document = document
        #: by where a line ends in the file
        self.points = points
        self.facts = facts
        self.score = score(facts)

    @property
    def order(self) -> tuple[float, int, bytes]:
        return -self.score, int(self.shard.sources[self.document]), self.shard.path(self.document)

    def best_lines(self, most: int) -> list[int]:
        """Where the lines to show end, in their order."""
        if len(self.points) <= most:
            return sorted(self.points)
        return sorted(sorted(self.points, key=lambda end: (-self.points[end], end))[:most])


class Sieve:
    """Makes Lights out of readings of one shard."""

    def __init__(self, compiled: Compiled, masks: Masks, shard: Shard) -> None:
        self._compiled = compiled
        self._shard = shard
        self._named = [term for term in compiled.shown if term.field == "any"]
        self.likely: Mask | None = masks.likely()

    def lights(self, reading: Reading, true: Iterable[int]) -> Iterator[Light]:
        kinds = {term: reading.kinds(term) for term in self._compiled.shown}
        for nth in true:
            document = reading.documents[nth]
            points, best = _points(reading, nth, kinds)
            together = max(points.values(), default=0) // _TERM
            path = self._path(document)
            marks = int(self._shard.marks[document])
            yield Light(self._shard, document, points, Facts(best, path, together, len(points), marks))

    def _path(self, document: int) -> int:
        if self.likely is None or not self.likely[document]:
            return 0
        path = self._shard.path(document)
        spans = [span for term in self._named for span in self._compiled.finders[term].spans(path)]
        return max((path_place(path, *span) for span in spans), default=0)


def _points(reading: Reading, nth: int, kinds: dict[Term, list[int]]) -> tuple[dict[int, int], tuple[int, ...]]:
    """Of the lines of the n-th document; and the best kind of each term."""
    start = int(reading.starts[nth])
    points: dict[int, int] = {}
    best: list[int] = []
    for term, kind in kinds.items():
        found = reading.found(term)
        low, high = found.cuts[nth], found.cuts[nth + 1]
        best.append(max(kind[low:high], default=0))
        for line, here in zip(found.matches.lines[low:high], kind[low:high], strict=True):
            points[line - start] = points.get(line - start, 0) + _TERM + here
    return points, tuple(best)
