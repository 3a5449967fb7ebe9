"""A query ready to run: each term with its finder. Belongs to one search, and so to one thread."""

from collections.abc import Iterator

from skep.engines.index.trigram.match import Finder, finder
from skep.errors import BadQuery
from skep.model.search import And, Not, Or, Query, Term, terms


class Compiled:
    def __init__(self, query: Query) -> None:
        self.query = _cheap_first(query)
        self.finders: dict[Term, Finder] = {}
        for term in terms(query):
            if term.field == "source":
                raise BadQuery("a source cannot be asked for inside the index", column=term.column)
            self.finders[term] = finder(term)
        #: whose matching lines are shown, and what of a path is: not negated
        wanted = tuple(dict.fromkeys(_positive(query)))
        self.shown = tuple(term for term in wanted if reads_text(term))
        self.named = tuple(term for term in wanted if term.field in ("any", "path"))


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
    return any(term.field in ("any", "content") for term in terms(query))
