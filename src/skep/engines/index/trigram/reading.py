"""One document under one query: its text is read once, and each term searched at most once."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.excerpt import Span, excerpt
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.match import Watch
from skep.engines.index.trigram.shard import Shard
from skep.model.search import And, FileHit, Language, Line, Not, Query, Term, Within


class Reading:
    def __init__(self, compiled: Compiled, masks: Masks, shard: Shard, document: int, most: int, watch: Watch) -> None:
        self._compiled = compiled
        self._masks = masks
        self._shard = shard
        self._document = document
        #: lines to show
        self._most = most
        self._watch = watch
        self._text: bytes | None = None
        self._found: dict[Term, list[Span]] = {}

    def hit(self) -> FileHit | None:
        if not self._true(self._compiled.query):
            return None
        lines = tuple(islice(self._lines(), self._most + 1))
        shard, document = self._shard, self._document
        return FileHit(
            int(shard.sources[document]),
            shard.path(document).decode("utf-8", "backslashreplace"),
            shard.blob(document),
            lines[: self._most],
            len(lines) > self._most,
            shard.language(document),
            int(shard.marks[document]),
            int(shard.branches[document]),
            path_ranges=self._path_ranges(shard.path(document)),
        )

    def _path_ranges(self, path: bytes) -> tuple[Span, ...]:
        found = [span for term in self._compiled.named for span in self._compiled.finders[term].spans(path)]
        return excerpt(0, path, found).ranges if found else ()

    def _true(self, query: Query) -> bool:
        if isinstance(query, Within | Language) or (isinstance(query, Term) and query.field in ("path", "branch")):
            return self._masks.is_true(query, self._document)
        if isinstance(query, Term):
            if query.field == "symbol":
                return False
            return bool(self._matching(query)) or (query.field == "any" and self._masks.is_true(query, self._document))
        if isinstance(query, Not):
            return not self._true(query.part)
        return all(map(self._true, query.parts)) if isinstance(query, And) else any(map(self._true, query.parts))

    def _matching(self, term: Term) -> list[Span]:
        """The first lines that match; one more than are shown, to know that there are more."""
        if term not in self._found:
            if self._text is None:
                self._text = self._shard.text(self._document)
            most = self._most + 1 if term in self._compiled.shown else 1
            self._found[term] = list(islice(self._compiled.finders[term].lines(self._text, self._watch), most))
        return self._found[term]

    def _lines(self) -> Iterator[Line]:
        """The lines that any of the shown terms matches, in order."""
        matching = {term: set(self._matching(term)) for term in self._compiled.shown}
        text = self._text or b""
        number, counted = 1, 0
        for span in sorted(set().union(*matching.values())):
            start, end = span
            number += _newlines(text, counted, start)
            counted = start
            line = text[start:end]
            found = (self._compiled.finders[term].spans(line) for term, lines in matching.items() if span in lines)
            yield excerpt(number, line, [match for spans in found for match in spans])


def _newlines(text: bytes, start: int, end: int) -> int:
    if end - start < 2000:
        return text.count(b"\n", start, end)
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, end - start, start) == 10))  # several times faster
