"""A query ready to run: each term with its finder."""

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

from skep.engines.index.trigram.match import Finder, finder
from skep.errors import BadQuery
from skep.model.search import And, Not, Or, Query, Term, terms

#: finders kept for the next search that has the same term: compiling takes longer than many a search
_KEPT = 64


class Shelf:
    """Finders that no search uses now. One at a time may use a finder, so who takes one puts it back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: OrderedDict[Term, Finder] = OrderedDict()

    def take(self, term: Term) -> Finder:
        with self._lock:
            idle = self._idle.pop(_key(term), None)
        return idle or finder(term)

    def put(self, term: Term, used: Finder) -> None:
        with self._lock:
            self._idle[_key(term)] = used
            if len(self._idle) > _KEPT:
                self._idle.popitem(last=False)


def _key(term: Term) -> Term:
    """Field and column make no difference to what a pattern matches."""
    return Term("any", term.pattern, term.regex, term.case)


class Compiled:
    """Belongs to one search, and so to one thread."""

    def __init__(self, query: Query, shelf: Shelf) -> None:
        self.query = _cheap_first(query)
        self.finders: dict[Term, Finder] = {}
        for term in terms(query):
            if term.field == "source":
                raise BadQuery("a source cannot be asked for inside the index", column=term.column)
            self.finders[term] = shelf.take(term)
        self._shelf = shelf
        wanted = tuple(dict.fromkeys(_positive(query)))
        #: whose matching lines are shown
        self.shown = tuple(term for term in wanted if reads_text(term))
        #: whose matches in a path are shown
        self.named = tuple(term for term in wanted if term.field in ("any", "path"))

    def done(self) -> None:
        for term, used in self.finders.items():
            self._shelf.put(term, used)


def _positive(query: Query, negated: bool = False) -> Iterator[Term]:
    if isinstance(query, Term):
        if not negated:
            yield query
    elif isinstance(query, Not):
        yield from _positive(query.part, not negated)
    elif isinstance(query, And | Or):
        for part in query.parts:
            yield from _positive(part, negated)


def _cheap_first(query: Query) -> Query:
    """The same query, asking for paths and sources before it reads text."""
    if isinstance(query, And | Or):
        return type(query)(tuple(sorted(map(_cheap_first, query.parts), key=reads_text)))
    return Not(_cheap_first(query.part)) if isinstance(query, Not) else query


def reads_text(query: Query) -> bool:
    return any(term.field in ("any", "content", "symbol") for term in terms(query))
