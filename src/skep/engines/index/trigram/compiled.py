"""A query ready to run: each term with its finder."""

import re
from collections import OrderedDict
from threading import Lock

from skep.engines.index.books import name_number
from skep.engines.index.trigram.finders import finder
from skep.engines.index.trigram.match import Finder
from skep.engines.index.trigram.pattern import understood
from skep.engines.index.trigram.plan import Plan, plan
from skep.engines.index.trigram.syntax import Cat, Chars, NotUnderstood, bits
from skep.errors import BadQuery
from skep.model.search import And, Not, Or, Query, Term, positive, terms

#: finders kept for the next search that has the same term: compiling takes longer than many a search
_KEPT = 64
#: words of a query whose definitions are looked for
_MOST_NAMES = 8
_WORD = re.compile(r"\w+")


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
        wanted = tuple(dict.fromkeys(positive(query)))
        #: whose matching lines are shown
        self.shown = tuple(term for term in wanted if reads_text(term))
        #: a line may match one of them and only a part of the query ask for it that is not true of the file
        self.divided = _is_divided(query)
        #: whose matches in a path are shown
        self.named = tuple(term for term in wanted if term.field in ("any", "path"))
        #: whose place in a path counts: what only narrows where text is looked for says nothing about a file
        self.placed = tuple(term for term in self.named if term.field == "any" or not self.shown)
        #: paths are all that is asked for
        self.by_path = bool(self.placed) and not self.shown
        #: what the best of those paths hold
        self.endings = [ending for term in self.placed if self.by_path and (ending := _ending(term)) is not None]
        #: numbers of the names that are asked for as they are written
        self.names = _names(self.shown)

    def done(self) -> None:
        for term, used in self.finders.items():
            self._shelf.put(term, used)


def _ending(term: Term) -> Plan | None:
    """What a path holds whose name ends with a match, or goes on with an extension; None: who knows."""
    try:
        return plan(Cat((understood(term).node, Chars(bits(".\n")))))
    except NotUnderstood:
        return None


def _names(shown: tuple[Term, ...]) -> list[int]:
    """Of the words, and of what they may be together: `parse args` is parse_args or parseArgs."""
    words = [word for term in shown if not term.regex for word in _WORD.findall(term.pattern)][:_MOST_NAMES]
    joined = ["_".join(words), "".join(words)] if len(words) > 1 else []
    return [name_number(word.encode("utf-8", "surrogateescape")) for word in [*words, *joined]]


def either(query: And | Or, negated: bool) -> bool:
    """Is one of its parts enough?"""
    return isinstance(query, Or) != negated


def _is_divided(query: Query, negated: bool = False, enough: bool = False) -> bool:
    """Does it ask for several things where one is `enough`?"""
    if isinstance(query, Not):
        return _is_divided(query.part, not negated, enough)
    if not isinstance(query, And | Or):
        return False
    one = either(query, negated)
    return (enough and not one) or any(_is_divided(part, negated, one) for part in query.parts)


def _cheap_first(query: Query) -> Query:
    """The same query, asking for paths and sources before it reads text."""
    if isinstance(query, And | Or):
        return type(query)(tuple(sorted(map(_cheap_first, query.parts), key=reads_text)))
    return Not(_cheap_first(query.part)) if isinstance(query, Not) else query


def reads_text(query: Query) -> bool:
    return any(term.field in ("any", "content", "symbol") for term in terms(query))
