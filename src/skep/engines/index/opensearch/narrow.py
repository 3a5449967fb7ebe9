"""A query as a filter of the server's: true for every document the query is true for, and for some others."""

from collections.abc import Iterable, Sequence

import numpy as np

from skep.engines.index.opensearch.documents import words
from skep.engines.index.opensearch.filters import Filter, any_of, one_of
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.plan import All, Grams, Pair, Plan, Some
from skep.model.search import And, Language, Not, Or, Query, Term, Within, terms

#: clauses a server takes in one query are 1024; further keys hardly narrow what some have left over
_MOST_CLAUSES, _MOST_KEYS = 900, 16


def narrow(compiled: Compiled) -> Filter | None:
    """None: any document."""
    return _Narrower(compiled).filter(compiled.query)


def likely(compiled: Compiled) -> Filter:
    """Documents whose paths promise the best hits."""
    plans = compiled.endings if compiled.by_path else [compiled.finders[term].plan for term in compiled.placed]
    return any_of(_Narrower(compiled).paths(plans))


def among(numbers: Iterable[int]) -> Filter:
    """Documents of these sources."""
    return one_of("source", sorted(numbers))


def _groups(plan: Plan | None) -> int:
    match plan:
        case None:
            return 0
        case Grams() | Pair():
            return 1
        case All(parts) | Some(parts):
            return sum(map(_groups, parts))


class _Narrower:
    def __init__(self, compiled: Compiled) -> None:
        self._plans = {term: finder.plan for term, finder in compiled.finders.items() if term.field != "branch"}
        groups = sum(_groups(plan) * (2 if term.field == "any" else 1) for term, plan in self._plans.items())
        groups += sum(map(_groups, compiled.endings))
        #: of one literal; 0: there are too many of them
        self._keys = min(_MOST_CLAUSES // max(1, groups), _MOST_KEYS)

    def filter(self, query: Query) -> Filter | None:
        match query:
            case Within(numbers):
                return among(numbers)
            case Language(name):
                return {"term": {"language": name}}
            case Term():
                return self._term(query)
            case Not(part):
                exact = self.filter(part) if not any(True for _ in terms(part)) else None
                return None if exact is None else {"bool": {"must_not": [exact]}}
            case And(parts):
                known = [one for one in map(self.filter, parts) if one is not None]
                return {"bool": {"filter": known}} if known else None
            case Or(parts):
                return _either([self.filter(part) for part in parts])

    def _term(self, term: Term) -> Filter | None:
        plan = self._plans.get(term)
        if plan is None or not self._keys:
            return None
        if term.field == "any":
            return any_of([self._plan(plan, "grams"), self._plan(plan, "path_grams")])
        return self._plan(plan, "path_grams" if term.field == "path" else "grams")

    def paths(self, plans: Iterable[Plan | None]) -> list[Filter]:
        return [self._plan(plan, "path_grams") for plan in plans if plan is not None and self._keys]

    def _plan(self, plan: Plan, field: str) -> Filter:
        match plan:
            case Grams(keys):
                chosen = keys[np.unique(np.linspace(0, len(keys) - 1, self._keys).astype(int))]
                return {"bool": {"filter": [{"term": {field: word}} for word in words(chosen).split()]}}
            case Pair(first):
                return {"prefix": {field: words(np.array([first]))[:2]}}
            case All(parts):
                return {"bool": {"filter": [self._plan(part, field) for part in parts]}}
            case Some(parts):
                return any_of([self._plan(part, field) for part in parts])


def _either(parts: Sequence[Filter | None]) -> Filter | None:
    return None if any(part is None for part in parts) else any_of([part for part in parts if part is not None])
