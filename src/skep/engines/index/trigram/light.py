"""What a reading found of each file, small enough to keep hundreds of them: only what is shown is cut out later."""

from collections.abc import Iterable, Iterator, Mapping

from skep.engines.index.base import Gains, Standing
from skep.engines.index.ranking import Facts, path_place, score
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.reading import Reading
from skep.engines.index.trigram.shard import Shard
from skep.model.search import Term

#: a line's points are the kinds of the matches on it, and this for each term that matches there
_TERM = 1000
#: by where a line ends in the file: the definition on it, where its name starts and ends in the file, and its kind
Symbols = dict[int, tuple[int, int, str]]
#: of each term: how its matches lie, and what definitions they touch
Kinds = dict[Term, tuple[list[int], list[int]]]


class Light:
    """A file that matches, and which of its lines do."""

    __slots__ = ("document", "facts", "points", "score", "shard", "symbols")

    def __init__(self, shard: Shard, document: int) -> None:
        self.shard = shard
        self.document = document
        #: by where a line ends in the file
        self.points: dict[int, int] = {}
        self.symbols: Symbols = {}
        self.facts = Facts(())
        self.score = 0.0

    def order(self, standings: Mapping[int, Standing]) -> tuple[float, float, int, bytes]:
        """Of files as good as each other those of the source that changed last come first: of forks, the living one."""
        source = int(self.shard.sources[self.document])
        return -self.score, -standings[source].fetched_at, source, self.shard.path(self.document)

    def best_lines(self, most: int) -> list[int]:
        """Where the lines to show end, in their order."""
        if len(self.points) <= most:
            return sorted(self.points)
        return sorted(sorted(self.points, key=lambda end: (-self.points[end], end))[:most])


class Sieve:
    """Makes Lights out of readings of one shard."""

    def __init__(self, compiled: Compiled, masks: Masks, shard: Shard, gains: Gains | None) -> None:
        self._compiled = compiled
        self._gains = gains
        self._shard = shard
        self._named = [term for term in compiled.shown if term.field == "any"]
        self.likely: Mask | None = masks.likely()

    def lights(self, reading: Reading, true: Iterable[int]) -> Iterator[Light]:
        kinds = {term: reading.kinds(term) for term in self._compiled.shown}
        for nth in true:
            light = Light(self._shard, reading.documents[nth])
            best = _fill(light, reading, nth, kinds)
            together = max(light.points.values(), default=0) // _TERM
            marks = int(self._shard.marks[light.document])
            gain = 0 if self._gains is None else int(self._gains[self._shard.sources[light.document]])
            light.facts = Facts(best, self._path(light.document), together, len(light.points), marks, gain)
            light.score = score(light.facts)
            yield light

    def _path(self, document: int) -> int:
        if self.likely is None or not self.likely[document]:
            return 0
        path = self._shard.path(document)
        spans = [span for term in self._named for span in self._compiled.finders[term].spans(path)]
        return max((path_place(path, *span) for span in spans), default=0)


def _fill(light: Light, reading: Reading, nth: int, kinds: Kinds) -> tuple[int, ...]:
    """Note the matching lines of the n-th document; the best kind of each term."""
    start = int(reading.starts[nth])
    points = light.points
    best: list[int] = []
    for term, (kind, touched) in kinds.items():
        found = reading.found(term)
        low, high = found.cuts[nth], found.cuts[nth + 1]
        best.append(max(kind[low:high], default=0))
        for line, here in zip(found.matches.lines[low:high], kind[low:high], strict=True):
            points[line - start] = points.get(line - start, 0) + _TERM + here
        for place in range(low, high):
            if (definition := touched[place]) >= 0:
                light.symbols[found.matches.lines[place] - start] = reading.definition(definition, start)
    return tuple(best)
