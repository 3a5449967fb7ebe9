"""A first look at a candidate's bytes: most of those that only share some trigrams with the query go here."""

from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.match import Matches, Watch
from skep.model.search import And, Document, Or, Query, Term


class Sift:
    def __init__(self, compiled: Compiled, watch: Watch) -> None:
        self._compiled = compiled
        self._watch = watch

    def lines(self, document: Document) -> int | None:
        """About how many lines match; None: the query is not true for this document."""
        found: dict[Term, int] = {}
        if not self._may_be_true(self._compiled.query, document, found):
            return None
        return sum(found.values())

    def _may_be_true(self, query: Query, document: Document, found: dict[Term, int]) -> bool:
        match query:
            case Term(field) if field in ("content", "any"):
                return self._matches(query, document, found)
            case And(parts):
                return all(self._may_be_true(part, document, found) for part in parts)
            case Or(parts):
                return any(self._may_be_true(part, document, found) for part in parts)
            case _:  # the embedded engine decides
                return True

    def _matches(self, term: Term, document: Document, found: dict[Term, int]) -> bool:
        finder = self._compiled.finders[term]
        matches = Matches([], [], [])
        if document.content:
            finder.find(document.content, [(0, len(document.content))], self._watch, matches)
        found[term] = len(matches.lines)
        return found[term] > 0 or (term.field == "any" and any(map(finder.matches, document.path.split(b"\n"))))
