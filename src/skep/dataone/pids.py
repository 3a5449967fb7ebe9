"""Identifiers in paths. They are opaque: never normalised, encoded once, and one segment whatever they hold."""

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from skep.errors import BadInput

LONGEST = 800
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_SAFE = ":@$!*()',~&="


def check(pid: str) -> str:
    """BadInput when it cannot be an identifier."""
    if not pid or len(pid) > LONGEST or _BLANK.search(pid):
        raise BadInput(f"{pid[:80]!r} is no identifier", hint="1 to 800 characters, none of them blank")
    return pid


@lru_cache(1_000)  # each is asked for twice
def encode(pid: str) -> str:
    """As one segment of a path. Dots alone would be taken for a folder."""
    return quote(pid, safe=_SAFE) if pid not in (".", "..") else pid.replace(".", "%2E")


def decode(segment: str) -> str:
    """BadInput when the segment holds no identifier."""
    try:
        return check(unquote(segment, errors="strict"))
    except UnicodeDecodeError:
        raise BadInput(f"{segment[:80]!r} is not UTF-8") from None
