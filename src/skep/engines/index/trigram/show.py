"""A file as it is shown: its text is read again, and only the lines that are shown are cut out of it."""

from collections.abc import Iterator

import numpy as np

from skep.engines.index.ranking import reasons
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.excerpt import Span, excerpt, plain
from skep.engines.index.trigram.light import Light, Symbols
from skep.model.search import FileHit, Limits, Line


class Show:
    def __init__(self, compiled: Compiled, limits: Limits) -> None:
        self._compiled = compiled
        self._limits = limits
        self._texts = [term for term in compiled.shown if term.field != "symbol"]

    def hit(self, light: Light, most: int) -> FileHit:
        shard, document = light.shard, light.document
        path = shard.path(document)
        ends = light.best_lines(min(most, self._limits.lines_per_file))
        return FileHit(
            int(shard.sources[document]),
            path.decode("utf-8", "backslashreplace"),
            shard.blob(document),
            tuple(self._lines(shard.text(document), ends, light.symbols)) if ends else (),
            len(ends) < len(light.points),
            shard.language(document),
            int(shard.marks[document]),
            int(shard.branches[document]),
            round(light.score, 2),
            reasons(light.facts) if self._limits.explain else (),
            self._path_ranges(path),
        )

    def _path_ranges(self, path: bytes) -> tuple[Span, ...]:
        found = [span for term in self._compiled.named for span in self._compiled.finders[term].spans(path)]
        return excerpt(0, path, found).ranges if found else ()

    def _lines(self, text: bytes, ends: list[int], symbols: Symbols) -> Iterator[Line]:
        number, counted = 1, 0
        for end in ends:
            start = text.rfind(b"\n", 0, end) + 1
            number += _newlines(text, counted, start)
            counted = start
            line = text[start:end]
            spans = [span for term in self._texts for span in self._compiled.finders[term].spans(line)]
            named, stop, kind = symbols.get(end, (0, 0, ""))
            if kind and len(self._texts) < len(self._compiled.shown):
                spans.append((named - start, stop - start))
            around = self._limits.context
            yield excerpt(number, line, spans, _before(text, start, around), _after(text, end, around), kind)


def _before(text: bytes, start: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while start > 0 and len(lines) < count:
        end = start - 1
        start = text.rfind(b"\n", 0, end) + 1
        lines.append(plain(text[start:end]))
    return tuple(reversed(lines))


def _after(text: bytes, end: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while end + 1 < len(text) and len(lines) < count:
        start = end + 1
        end = text.find(b"\n", start)
        lines.append(plain(text[start:end]))
    return tuple(lines)


def _newlines(text: bytes, start: int, end: int) -> int:
    if end - start < 2000:
        return text.count(b"\n", start, end)
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, end - start, start) == 10))  # several times faster
