"""Translates recorded data through a table of renames, so that what still differs was not intended.

A row of the table (tests/renames.py) applies to whole words, keys and paths of its surface:

- `look_timeout` is found wherever it is a word of its own: not in `look_timeouts`, nor in `x-look_timeout`.
- A plain word of small letters, such as `at` or `grace`, is not changed inside text for people: there it may be prose.
- `Change > at` is a path: the field of this name in this place only.
- Text with spaces, such as `unknown setting`, is changed in text for people too.
- A setting is also changed in its variable (`SKEP_LOOK_TIMEOUT`) and in its option (`--look-timeout`).

Each place is changed once, by the longest row that fits, so two names can be exchanged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.renames import EVERYWHERE, KINDS, Rename, RenameError

from .lines import SEPARATOR

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN_WORD = re.compile(r"[a-z]+")
#: letters that make another word of it
_BEFORE, _AFTER = r"(?<![\w-])", r"(?!\w|-\w)"


def translate(surface: str, lines: Iterable[str], table: Sequence[Rename]) -> list[str]:
    rows = [row for row in table if not row.where and _is_about(row, surface)]
    if not rows:
        return list(lines)
    pairs: dict[str, str] = {}
    for row in rows:
        for old, new in _spellings(row):
            if pairs.setdefault(old, new) != new:
                raise RenameError(f"{surface}: {old!r} becomes {pairs[old]!r} and {new!r}")
    return [_translated(one, pairs) for one in lines]


def _is_about(row: Rename, surface: str) -> bool:
    return row.surface in (EVERYWHERE, surface) or surface in KINDS.get(row.surface, ())


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
