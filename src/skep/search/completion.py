"""What may follow at the cursor of a query that is being written. Pure."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from skep.base.errors import BadQuery
from skep.search.api import Completion
from skep.search.query import CASES, FIELDS, KINDS, NAMES, Kind, find, kind_of, parse
from skep.storage.code_index.model import Or

_MOST = 20
_PIECE = re.compile(r"""(?P<lead>[\s(]*-?)(?P<field>[a-z]{1,20}:)?(?P<value>"(?:\\.|[^"\\])*"?|[^\s]*)""", re.DOTALL)
_TYPE = re.compile(r"(?<!\S)(?:type|t):(\w+)(?!\S)")
#: what a name may hold without quotes
_PLAIN = re.compile(r"[\w./@~+#-]+\Z")
#: what means something else in a regular expression, or ends it
_SPECIAL, _ESCAPED = re.compile(r"[\\.+*?()|\[\]{}^$\s]"), r"\\\g<0>"
#: what a commit has not, or a query may have once
_NOT_OF_COMMITS = ("file", "lang", "sym", "commit", "type")


class Writing(msgspec.Struct, frozen=True):
    """The word at the cursor: its field by full name ("" for none), and what stands behind the colon so far."""

    field: str
    #: the field as it stands there, with its colon
    written: str
    value: str
    start: int
    end: int


def writing(text: str, cursor: int) -> Writing:
    at, before = 0, text[: max(0, cursor)]
    while True:
        piece = _PIECE.match(before, at)
        if piece is None or piece.end() == len(before) or piece.end() == at:
            break
        at = piece.end()
    if piece is None:
        return Writing("", "", "", len(before), len(before))
    start = piece.end("lead")
    word = re.compile(r"[^\s)]*").match(text, len(before))
    end = word.end() if word else len(before)
    field = find((piece["field"] or "").removesuffix(":"))
    if field is None:
        return Writing("", "", before[start:], start, end)
    value = piece["value"].strip('"')
    if field.term is not None:
        value = re.sub(r"\\(?=\W)", "", value).removeprefix("^").removesuffix("$")
    return Writing(field.name, piece["field"], value, start, end)


def complete(
    text: str,
    cursor: int,
    sources: Sequence[str],
    languages: Sequence[str],
    branches: Sequence[str],
    fields: Mapping[Kind, Mapping[str, str]],
) -> list[Completion]:
    """Best first. The names are those the caller may know of; which of them fit is found here. `fields`: of reports and
    records, which have their own."""
    at = writing(text, cursor)
    names = _names(text, at, fields)
    if not at.field:
        fits = [name for name in names if name.startswith(at.value)]
        return [Completion(f"{name}:", at.start, at.end, names[name]) for name in fits]
    if at.field not in names:
        return []
    choice = {
        "repo": sources,
        "lang": languages,
        "branch": branches,
        "case": CASES,
        "type": [kind for kind in KINDS if kind != "line"],
        "count": ("100", "1000", "all"),
    }.get(at.field, ())
    fits = [name for name in choice if at.value.lower() in name.lower()]
    best = sorted(fits, key=lambda name: _rank(name, at.value))[:_MOST]
    return [Completion(f"{at.written}{_value(at.field, name)} ", at.start, at.end) for name in best]


def _names(text: str, at: Writing, fields: Mapping[Kind, Mapping[str, str]]) -> Mapping[str, str]:
    """The fields that may stand there, and what they are about."""
    kinds = [kind_of(found[1]) for found in _TYPE.finditer(text) if found.start() != at.start]
    kind: Kind = next((kind for kind in kinds if kind), "line")
    if kind in ("report", "record"):
        return fields.get(kind, {})
    return {name: about for name, about in NAMES.items() if kind != "commit" or name not in _NOT_OF_COMMITS}


def narrowed(query: str, field: str, name: str) -> str:
    """The same query, true of less: only where the field is this name."""
    return f"{f'({query})' if _divides(query) else query} {field}:{_value(field, name)}"


def _divides(query: str) -> bool:
    """Would what follows it belong to the last of its alternatives?"""
    try:
        return isinstance(parse(f"{query} x"), Or)
    except BadQuery:  # too long to be narrowed
        return False


def _rank(name: str, value: str) -> tuple[bool, bool, int, str]:
    folded, wanted = name.lower(), value.lower()
    return not folded.startswith(wanted), f"/{wanted}" not in folded, len(name), name


def _value(field: str, name: str) -> str:
    """What finds this name and no other."""
    if field in FIELDS:
        return f"^{_SPECIAL.sub(_ESCAPED, name)}$"
    if _PLAIN.match(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
