"""The sources as a search sees them: names to match `repo:` against, and a mask of what a caller may see."""

import msgspec
import numpy as np

from skep.engines.index.base import Visible
from skep.engines.index.dialect import compile_term
from skep.model.caller import Caller
from skep.model.search import And, Not, Or, Query, Term, Within
from skep.sources.views import Named


class Catalogue(msgspec.Struct, frozen=True):
    sources: dict[int, Named]

    def visible(self, caller: Caller) -> Visible:
        mask = np.zeros(max(self.sources, default=-1) + 1, np.bool_)
        mask[[number for number, source in self.sources.items() if caller.sees(source.visibility)]] = True
        return mask

    def resolve(self, query: Query) -> Query:
        """Replace every `repo:` by the sources it names."""
        match query:
            case Term(field="source"):
                return Within(frozenset(self._named(query)))
            case And(parts) | Or(parts):
                return type(query)(tuple(self.resolve(part) for part in parts))
            case Not(part):
                return Not(self.resolve(part))
            case _:
                return query

    def _named(self, term: Term) -> list[int]:
        search = compile_term(term).search
        return [number for number, source in self.sources.items() if search(source.name.encode())]
