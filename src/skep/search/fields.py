"""The words before a colon that a query may use, with the short spellings of Zoekt."""

import difflib
from typing import Final, Literal, get_args

import msgspec

from skep.analysis.language import languages, named
from skep.errors import BadQuery
from skep.model.search import Field

#: what the answer is made of: matching lines, whole files, sources, files by their path, commits, or what others keep
Kind = Literal["line", "file", "repo", "path", "commit", "report", "record"]

#: those that are matched, and what they are in a query
FIELDS: Final[dict[str, Field]] = {
    "repo": "source",
    "file": "path",
    "path": "path",
    "sym": "symbol",
    "branch": "branch",
    "content": "content",
    "author": "author",
}
_SHORT: Final = {"r": "repo", "f": "file", "b": "branch", "l": "lang", "s": "sym", "c": "content", "t": "type"}
#: true of the whole query wherever they stand
SETTINGS: Final = ("case", "type", "count", "commit", "after", "before")
#: fields of commits; elsewhere they are words where no value follows
OF_COMMITS: Final = ("author", "after", "before")

#: full names, as they are completed and suggested
NAMES: Final[dict[str, str]] = {
    "repo": "the source's name matches",
    "file": "the path matches",
    "lang": "written in this language",
    "sym": "defines something of this name",
    "branch": "on this branch",
    "content": "in the content only",
    "case": "yes, no or auto",
    "type": "file, repo, path, commit, report or record",
    "count": "lines wanted, or all",
    "commit": "in the files as they were at this commit or tag",
    "author": "of commits: whose name or address matches",
    "after": "of commits: not before this day, or 30d ago",
    "before": "of commits: before this day",
}
CASES: Final = ("yes", "no", "auto")
#: Zoekt's names for the first and the second
_KINDS: Final[dict[str, Kind]] = {"filematch": "line", "filename": "file"}
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Named(msgspec.Struct, frozen=True):
    """A field by its full name; `term` is None for `lang:` and for settings."""

    name: str
    term: Field | None


def find(word: str) -> Named | None:
    name = _SHORT.get(word, word)
    if name not in NAMES and name not in FIELDS:
        return None
    return Named(name, FIELDS.get(name))


def kind_of(value: str) -> Kind | None:
    known: dict[str, Kind] = {**_KINDS, **{kind: kind for kind in KINDS}}
    return known.get(value)


def language(value: str) -> str:
    """The name of the one that is meant by a name or an alias, whatever its case; BadQuery guesses at it."""
    if found := named(value):
        return found
    close = difflib.get_close_matches(value.lower(), [name.lower() for name in languages()], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'`{one}`' for one in close)}?" if close else "see docs/search.md"
    raise BadQuery(f"there is no language `{value[:100]}`", hint=hint)
