"""Translates recorded data through a table of renames, so that what still differs was not intended.

The table has the columns surface, old, new, divided by tabs; empty lines and lines that begin with `#` are comments.
A row applies to whole words, keys and paths of its surface:

- `look_timeout` is found wherever it is a word of its own: not in `look_timeouts`, nor in `x-look_timeout`.
- A plain word of small letters, such as `at` or `grace`, is not changed inside text for people: there it may be prose.
- `Change > at` is a path: the field of this name in this place only.
- Text with spaces, such as `unknown setting`, is changed in text for people too.
- A setting is also changed in its variable (`SKEP_LOOK_TIMEOUT`) and in its option (`--look-timeout`).

Each place is changed once, by the longest row that fits, so two names can be exchanged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .lines import SEPARATOR

#: kinds of things, and where each is visible
KINDS: Mapping[str, tuple[str, ...]] = {
    "class": ("client", "errors", "openapi", "rpc"),
    "code": ("cli", "client", "errors"),
    "column": ("explain", "schema"),
    "command": ("cli",),
    "field": ("client", "cli", "openapi", "payloads", "rpc"),
    "label": ("pages",),
    "metric": ("metrics",),
    "route": ("client", "dataone", "errors", "openapi", "pages"),
    "setting": ("cli", "settings"),
    "table": ("explain", "schema"),
    "topic": ("openapi", "pages", "payloads"),
    "verb": ("audit",),
}
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN_WORD = re.compile(r"[a-z]+")
#: letters that make another word of it
_BEFORE, _AFTER = r"(?<![\w-])", r"(?!\w|-\w)"


class Rename(NamedTuple):
    surface: str
    old: str
    new: str


class RenameError(ValueError):
    """The table is wrong; the text says where."""


def read_table(path: Path, surfaces: Iterable[str]) -> list[Rename]:
    known = {*surfaces, *KINDS, "*"}
    found: list[Rename] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip() or text.startswith("#") or text.split("\t")[:3] == ["surface", "old", "new"]:
            continue
        cells = text.split("\t")
        if len(cells) < 3 or not cells[1] or not cells[2]:
            raise RenameError(f"{path}:{number}: a row needs surface, old and new, divided by tabs: {text!r}")
        for surface in cells[0].split(","):
            if surface.strip() not in known:
                raise RenameError(f"{path}:{number}: unknown surface {surface!r}; known: {', '.join(sorted(known))}")
            found.append(Rename(surface.strip(), cells[1], cells[2]))
    return found


def translate(surface: str, lines: Iterable[str], table: Sequence[Rename]) -> list[str]:
    rows = [row for row in table if row.surface in ("*", surface) or surface in KINDS.get(row.surface, ())]
    if not rows:
        return list(lines)
    pairs: dict[str, str] = {}
    for row in rows:
        for old, new in _spellings(row):
            if pairs.setdefault(old, new) != new:
                raise RenameError(f"{surface}: {old!r} becomes {pairs[old]!r} and {new!r}")
    return [_translated(one, pairs) for one in lines]


def _spellings(row: Rename) -> list[tuple[str, str]]:
    found = [(row.old, row.new)]
    if row.surface in ("setting", "settings"):
        found.append((f"SKEP_{row.old.upper()}", f"SKEP_{row.new.upper()}"))
        found.append((f"--{row.old.replace('_', '-')}", f"--{row.new.replace('_', '-')}"))
    return found


def _translated(text: str, pairs: Mapping[str, str]) -> str:
    parts, end = [], 0
    for found in _TEXT.finditer(text):
        prose = " " in found[0]
        parts += [_replaced(text[end : found.start()], pairs, prose=False), _replaced(found[0], pairs, prose=prose)]
        end = found.end()
    parts.append(_replaced(text[end:], pairs, prose=False))
    return "".join(parts)


def _replaced(text: str, pairs: Mapping[str, str], *, prose: bool) -> str:
    usable = [old for old in pairs if not (prose and (_PLAIN_WORD.fullmatch(old) or SEPARATOR in old))]
    if not usable:
        return text
    words = "|".join(_pattern(old) for old in sorted(usable, key=len, reverse=True))
    return re.sub(words, lambda found: pairs[found[0]], text)


def _pattern(old: str) -> str:
    """A path ends where its segment ends, a word where no letter, digit or dash goes on."""
    if SEPARATOR in old:
        return r"(?:(?<=^)|(?<= > ))" + re.escape(old) + r"(?= > | = |$)"
    before = _BEFORE if old[0].isalnum() or old[0] in "_-" else ""
    return before + re.escape(old) + (_AFTER if old[-1].isalnum() or old[-1] == "_" else "")
