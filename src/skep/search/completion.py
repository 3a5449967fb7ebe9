"""What may follow at the cursor of a query that is being written. Pure."""

import re
from collections.abc import Sequence

import msgspec

from skep.model.search_answers import Completion
from skep.search.fields import CASES, KINDS, NAMES, find

_MOST = 20
_PIECE = re.compile(r"""(?P<lead>[\s(]*-?)(?P<field>[a-z]{1,20}:)?(?P<value>"(?:\\.|[^"\\])*"?|[^\s]*)""", re.DOTALL)
#: what a value may hold without quotes, where a bare value is a regular expression or a name
_PLAIN = re.compile(r"[\w./@~+#-]+\Z")


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
    return Writing(field.name, piece["field"], piece["value"].strip('"'), start, end)


def complete(
    text: str, cursor: int, sources: Sequence[str], languages: Sequence[str], branches: Sequence[str]
) -> list[Completion]:
    """Best first. The names are those the caller may know of; which of them fit is found here."""
    at = writing(text, cursor)
    if not at.field:
        fits = [name for name in NAMES if name.startswith(at.value)]
        return [Completion(f"{name}:", at.start, at.end, NAMES[name]) for name in fits]
    choice = {
        "repo": sources,
        "lang": languages,
        "branch": branches,
        "case": CASES,
        "type": [kind for kind in KINDS if kind != "line"],
        "count": ("100", "1000", "all"),
    }.get(at.field, ())
    fits = [name for name in choice if at.value.lower() in name.lower()]
    names = sorted(fits, key=lambda name: _rank(name, at.value))
    return [Completion(f"{at.written}{quoted(name)} ", at.start, at.end) for name in names[:_MOST]]


def _rank(name: str, value: str) -> tuple[bool, bool, int, str]:
    folded, wanted = name.lower(), value.lower()
    return not folded.startswith(wanted), f"/{wanted}" not in folded, len(name), name


def quoted(name: str) -> str:
    """As the value of a field."""
    if _PLAIN.match(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
