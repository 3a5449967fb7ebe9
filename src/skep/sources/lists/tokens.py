"""Tokens for the APIs of forges. A setting names where a token is, never the token itself."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from skep.errors import BadInput

Token = Callable[[str], str]
_HINT = "write HOST=env:VARIABLE or HOST=file:PATH, such as api.github.com=env:GITHUB_TOKEN"


def tokens(places: Sequence[str], environ: Mapping[str, str] = os.environ) -> Token:
    """From the host that is asked to its token, read anew each time; empty where there is none."""
    known: dict[str, tuple[str, str]] = {}
    for place in places:
        host, equals, where = place.partition("=")
        how, colon, what = where.partition(":")
        if not (host and equals and colon and what) or how not in ("env", "file"):
            raise BadInput(f"`list_tokens`: '{host[:60]}' does not say where its token is", hint=_HINT)
        known[host.lower()] = (how, what)

    def token(host: str) -> str:
        how, what = known.get(host, ("", ""))
        try:
            text = Path(what).read_text(encoding="utf-8") if how == "file" else environ.get(what, "")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the token for {host} cannot be read from {what}", hint=_HINT) from error
        if not text.strip().isprintable():
            raise BadInput(f"the token for {host} is not one line of text", hint=_HINT)
        return text.strip()

    return token
