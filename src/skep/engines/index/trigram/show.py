"""A file as it is shown: only the lines that are shown are cut out of the shard's content."""

from collections.abc import Iterable, Iterator

import numpy as np

from skep.engines.index.ranking import reasons
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.excerpt import Span, excerpt, plain
from skep.engines.index.trigram.light import Light, Symbol
from skep.engines.index.trigram.shard import Shard
from skep.model.search import FileHit, Limits, Line, Term

#: bytes in which lines are counted sooner without numpy, which is several times faster on many
_FEW = 4096


class Show:
    def __init__(self, compiled: Compiled, limits: Limits) -> None:
        self._compiled = compiled
        self._limits = limits
        self._texts = [compiled.finders[term] for term in compiled.shown if term.field != "symbol"]
        #: whose matches in a path the facts of a file do not tell of
        self._untold = [t for t in compiled.named if t.field == "path" or compiled.finders[t].plan is None]

    def hit(self, light: Light, most: int) -> FileHit:
        shard, document = light.shard, light.document
        path = shard.path(document)
        lines = light.best_lines(most) if most else []
        return FileHit(
            int(shard.sources[document]),
            path.decode("utf-8", "backslashreplace"),
            shard.blob(document),
            tuple(self._lines(_Text(shard, document), lines)) if lines else (),
            most > 0 and len(lines) < light.facts.lines,
            shard.language(document),
            int(shard.marks[document]),
            int(shard.branches[document]),
            round(light.score, 2),
            reasons(light.facts) if self._limits.explain else (),
            self._path_ranges(path, self._compiled.named if light.facts.path else self._untold),
        )

    def _path_ranges(self, path: bytes, terms: Iterable[Term]) -> tuple[Span, ...]:
        found = [span for term in terms for span in self._compiled.finders[term].spans(path)]
        return excerpt(0, path, found).ranges if found else ()

    def _lines(self, text: "_Text", lines: list[tuple[int, Symbol]]) -> Iterator[Line]:
        around = self._limits.context
        for end, (named, stop, kind) in lines:
            start = text.line_start(end)
            line = text.cut(start, end)
            spans = [span for finder in self._texts for span in finder.spans(line)]
            if kind and len(self._texts) < len(self._compiled.shown):
                spans.append((named - start, stop - start))
            before, after = (text.before(start, around), text.after(end, around)) if around else ((), ())
            yield excerpt(text.number(start), line, spans, before, after, kind)


class _Text:
    """Of one document, where it lies mapped; places are counted from its beginning."""

    def __init__(self, shard: Shard, document: int) -> None:
        self._content = shard.content
        self._start, self._end = shard.span(document)
        #: line ends before `_counted`
        self._newlines = self._counted = 0

    def cut(self, start: int, end: int) -> bytes:
        return self._content[self._start + start : self._start + end]

    def line_start(self, end: int) -> int:
        """Of the line that ends there."""
        found = self._content.rfind(b"\n", self._start, self._start + end)
        return 0 if found < 0 else found + 1 - self._start

    def number(self, start: int) -> int:
        """Of the line that starts there; asked for one after the other."""
        first, last = self._start + self._counted, self._start + start
        if last - first < _FEW:
            self._newlines += self._content[first:last].count(b"\n")
        else:
            self._newlines += int(np.count_nonzero(np.frombuffer(self._content, np.uint8, last - first, first) == 10))
        self._counted = start
        return self._newlines + 1

    def before(self, start: int, count: int) -> tuple[str, ...]:
        lines: list[str] = []
        while start > 0 and len(lines) < count:
            end = start - 1
            start = self.line_start(end)
            lines.append(plain(self.cut(start, end)))
        return tuple(reversed(lines))

    def after(self, end: int, count: int) -> tuple[str, ...]:
        lines: list[str] = []
        while self._start + end + 1 < self._end and len(lines) < count:
            start = end + 1
            end = self._content.find(b"\n", self._start + start) - self._start
            lines.append(plain(self.cut(start, end)))
        return tuple(lines)
