"""Patterns of names with parts divided by `/`. Pure; they run in RE2, so that none of them can take long.

`*` and `?` stay within a part, `**` runs across parts (`**/` may be nothing at all), `[a-z]` and `[!a-z]` are one
character.
"""

from collections.abc import Sequence
from typing import Protocol

import re2

from skep.base.errors import BadInput

_MOST = 100
_LONGEST = 500


class Glob(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def compile_globs(patterns: Sequence[str], what: str, most: int = _MOST) -> Glob:
    """Matches what one of them matches. `what` they are patterns of, for who reads the error."""
    if len(patterns) > most:
        raise BadInput(f"{what}: {len(patterns)} patterns; at most {most} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    for pattern in patterns:
        if not 0 < len(pattern) <= _LONGEST:
            raise BadInput(f"{what}: a pattern has 1 to {_LONGEST} characters, not {len(pattern)}")
        try:
            re2.compile(_translated(pattern), options)
        except (re2.error, ValueError) as error:
            wrong = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
            raise BadInput(f"{what}: {pattern!r} is no pattern: {wrong}") from error
    try:
        compiled: Glob = re2.compile("|".join(f"(?:{_translated(pattern)})" for pattern in patterns), options)
    except re2.error as error:
        raise BadInput(f"{what}: these patterns are too much together", hint="use fewer or simpler ones") from error
    return compiled


def _translated(pattern: str) -> str:
    out, place = "", 0
    while place < len(pattern):
        if pattern.startswith("**/", place) and (place == 0 or pattern[place - 1] == "/"):
            out, place = out + "(?:.*/)?", place + 3
        elif pattern.startswith("**", place):
            out, place = out + ".*", place + 2
        elif pattern[place] == "[":
            # a `]` at the beginning is one of the characters
            end = pattern.find("]", place + (3 if pattern[place + 1 : place + 2] == "!" else 2))
            if end < 0:
                raise ValueError(f"'[' at {place + 1} is never closed")
            out, place = out + _one_of(pattern[place + 1 : end]), end + 1
        else:
            out, place = out + {"*": "[^/]*", "?": "[^/]"}.get(pattern[place], re2.escape(pattern[place])), place + 1
    return out


def _one_of(characters: str) -> str:
    negated = characters.startswith("!")
    inside = "".join("\\" + one if one in "\\[]^&~" else one for one in characters[negated:])
    return f"[^{inside}/]" if negated else f"[{inside}]"
