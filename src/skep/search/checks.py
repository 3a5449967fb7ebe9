"""Whether a query, once it is read, can be answered."""

from collections.abc import Mapping

from skep.engines.index.dialect import compile_term, encode
from skep.errors import BadQuery
from skep.model.search import And, Query, Term, terms
from skep.search.fields import FIELDS, Kind

MOST_TERMS = 200


def check_patterns(query: Query) -> None:
    """Every pattern can be run."""
    for count, term in enumerate(terms(query), start=1):
        if count > MOST_TERMS:
            raise BadQuery(f"the query has more than {MOST_TERMS} words", column=term.column)
        if term.regex:
            compile_term(term)
        else:
            encode(term)


def check_kind(query: Query, kind: Kind, columns: Mapping[str, int]) -> None:
    """Commits have no paths, and files no author. `columns`: where settings and `lang:` stand."""
    of_commits = kind == "commit"
    timed = [columns[name] for name in ("after", "before") if name in columns]
    if timed and not of_commits:
        hint = "add type:commit, or leave them out"
        raise BadQuery("`after:` and `before:` are about commits", hint=hint, column=min(timed))
    if of_commits and "lang" in columns:
        raise BadQuery("a commit has no `lang:`", hint="leave it out, or `type:commit`", column=columns["lang"])
    for term in terms(query):
        name = next((name for name, field in FIELDS.items() if field == term.field), "")
        if of_commits and term.field in ("path", "symbol"):
            raise BadQuery(f"a commit has no `{name}:`", hint="leave it out, or `type:commit`", column=term.column)
        if of_commits and term.field == "branch" and term not in needed(query):
            raise BadQuery("`branch:` of commits can only narrow", hint="write it beside `or`", column=term.column)
        if not of_commits and term.field == "author":
            raise BadQuery("`author:` is about commits", hint="add type:commit", column=term.column)


def check_past(query: Query, kind: Kind, column: int) -> None:
    """With `commit:`, which stands at that column, the files of one commit are searched."""
    if kind in ("repo", "commit"):
        raise BadQuery("`commit:` is about files", hint=f"leave it out, or `type:{kind}`", column=column)
    for term in terms(query):
        if term.field == "branch":
            raise BadQuery("a commit is on any branch", hint="leave `branch:` or `commit:` out", column=term.column)


def needed(query: Query) -> list[Term]:
    """The terms that stand for themselves: neither negated nor one of several."""
    if isinstance(query, And):
        return [term for part in query.parts for term in needed(part)]
    return [query] if isinstance(query, Term) else []
