"""What a reading found of each file, small enough to keep hundreds of them: only what is shown is cut out later."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skep.engines.index.base import Gains, Standing
from skep.engines.index.ranking import Facts, path_place, score
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.definitions import Definitions
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.postings import Ids, Mask
from skep.engines.index.trigram.reading import Reading
from skep.engines.index.trigram.rows import KIND_BITS, WORTH, worths
from skep.engines.index.trigram.shard import Shard

#: a definition: where its name starts and ends in the file, and its kind
Symbol = tuple[int, int, str]
_NO_SYMBOL = (0, 0, "")


class Sifted(NamedTuple):
    """The matches of a term in a reading; lists of the same length."""

    #: where the lines end
    lines: list[int]
    kinds: list[int]
    #: to their lines
    worth: list[int]
    #: the definition whose name is touched; -1: none
    touched: list[int]


#: matches of a term: from, to
Cut = tuple[Sifted, int, int]


class Light:
    """A file that matches, and which of its lines do."""

    __slots__ = ("_cuts", "_definitions", "_start", "document", "facts", "score", "shard")

    def __init__(
        self, shard: Shard, document: int, start: int, cuts: Sequence[Cut], definitions: Definitions | None
    ) -> None:
        self.shard = shard
        self.document = document
        self.facts = Facts(())
        self.score = 0.0
        #: where it starts in the content, what matches in it, and where names are defined
        self._start, self._cuts, self._definitions = start, cuts, definitions

    def order(self, standings: Mapping[int, Standing]) -> tuple[float, float, int, int, bytes]:
        """Of files as good as each other those of the source that changed last come first: of forks, the living one. Of
        one source, those of the default branch."""
        shard, document = self.shard, self.document
        source, branches = int(shard.sources[document]), int(shard.branches[document])
        return -self.score, -standings[source].fetched_at, source, branches & -branches, shard.path(document)

    def points(self) -> dict[int, int]:
        """By where a line ends: what the matches on it are worth, and WORTH for each term among them."""
        points: dict[int, int] = {}
        for sifted, low, high in self._cuts:
            for line, worth in zip(sifted.lines[low:high], sifted.worth[low:high], strict=True):
                points[line] = points.get(line, 0) + WORTH + worth
        return points

    def best_lines(self, most: int) -> list[tuple[int, Symbol]]:
        """Where the lines to show end in the file, in their order, and what is defined on them."""
        symbols = self._symbols()
        if len(self._cuts) == 1 and self.facts.lines <= most:  # nearly all
            ((sifted, low, high),) = self._cuts
            ends = sifted.lines[low:high]
        else:
            points = self.points()
            ends = sorted(points)
            if len(ends) > most:
                ends = sorted(sorted(ends, key=lambda end: -points[end])[:most])
        return [(end - self._start, symbols.get(end, _NO_SYMBOL)) for end in ends]

    def _symbols(self) -> dict[int, Symbol]:
        if self._definitions is None:
            return {}
        touched = {
            sifted.lines[nth]: self._definitions.at(definition)
            for sifted, low, high in self._cuts
            for nth, definition in enumerate(sifted.touched[low:high], low)
            if definition >= 0
        }
        return {end: (at - self._start, stop - self._start, kind) for end, (at, stop, kind) in touched.items()}


class Sieve:
    """Makes Lights out of readings of one shard."""

    def __init__(self, compiled: Compiled, masks: Masks, shard: Shard, gains: Gains | None) -> None:
        self._compiled = compiled
        self._gains = gains
        self._shard = shard
        self.likely: Mask | None = masks.likely()

    def lights(self, reading: Reading, nths: Ids) -> list[Light]:
        """Of these documents of the reading."""
        sifted = self._sift(reading)
        definitions = reading.definitions if any(max(one.touched, default=-1) >= 0 for one in sifted) else None
        cuts = [zip(lows.tolist(), highs.tolist(), strict=True) for lows, highs in reading.shown_cuts(nths)]
        documents = reading.documents[nths]
        traits = self._shard.traits[documents].tolist()
        lights: list[Light] = []
        for nth, document in enumerate(documents.tolist()):
            mine = [(one, *next(cut)) for one, cut in zip(sifted, cuts, strict=True)]
            light = Light(self._shard, document, int(reading.starts[nths[nth]]), mine, definitions)
            light.facts = self._facts(light, mine, traits[nth])
            light.score = score(light.facts)
            lights.append(light)
        return lights

    def _sift(self, reading: Reading) -> list[Sifted]:
        lying = [reading.lying(term) for term in self._compiled.shown]
        worth = [one.kinds for one in lying]
        if len(lying) > 1:
            worth = worths(lying, [found.lines for found in reading.shown], reading.definitions)
        columns = zip(reading.shown, lying, worth, strict=True)
        return [
            Sifted(found.lines.tolist(), one.kinds.tolist(), here.tolist(), one.touched.tolist())
            for found, one, here in columns
        ]

    def _facts(self, light: Light, cuts: Sequence[Cut], traits: int) -> Facts:
        best = tuple([max(sifted.kinds[low:high], default=0) for sifted, low, high in cuts])
        together, near, lines = 1, 0, cuts[0][2] - cuts[0][1] if cuts else 0
        if len(cuts) > 1:
            points = light.points()
            together, lines = max(points.values(), default=0) // WORTH, len(points)
            near = max([max(sifted.worth[low:high], default=0) for sifted, low, high in cuts]) >> KIND_BITS
        gain = 0 if self._gains is None else int(self._gains[self._shard.sources[light.document]])
        return Facts(best, self._path(light.document), together, near, lines, traits, gain)

    def _path(self, document: int) -> int:
        """The best place that a term matches in its path."""
        if not self._compiled.by_path and (self.likely is None or not self.likely[document]):
            return 0
        path = self._shard.path(document)
        spans = [span for term in self._compiled.placed for span in self._compiled.finders[term].spans(path)]
        return max((path_place(path, *span) for span in spans), default=0)
