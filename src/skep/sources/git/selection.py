"""Which refs of an upstream are mirrored (pure): patterns as git's refspecs have them, with at most one `*`."""

import re
from collections.abc import Mapping
from functools import lru_cache

from skep.errors import BadInput
from skep.lazy import lazy_property
from skep.sources.git.pktline import packet

USUAL = ("refs/heads/*", "refs/tags/*")
#: refs of our own in a mirror: never fetched, told or served
OWN = "refs/skep/"
_MOST = 100
#: what git never allows in the name of a ref
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|/\.|/$|\.$")
_LS_REFS = packet(b"command=ls-refs\n") + packet(b"agent=skep/mirror") + b"0001" + packet(b"symrefs\n")


def check_patterns(patterns: tuple[str, ...]) -> None:
    hint = "such as refs/heads/*, refs/pull/*/head or, to leave some out, ^refs/heads/bot/*"
    if not 0 < len(patterns) <= _MOST or all(one.startswith("^") for one in patterns):
        raise BadInput(f"`refs` needs 1 to {_MOST} patterns, one of them without ^", hint=hint)
    for pattern in patterns:
        name = pattern.removeprefix("^").replace("*", "x", 1)
        if not name.startswith("refs/") or name.startswith(OWN) or len(name) > 1_000 or _NO_REF.search(name):
            raise BadInput(f"`refs`: {pattern[:100]!r} is no pattern of refs", hint=hint)


@lru_cache(maxsize=1_000)
def selection(patterns: tuple[str, ...] | None) -> "Selection":
    return Selection(patterns or USUAL)


class Selection:
    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self._wanted = [_halves(one) for one in patterns if not one.startswith("^")]
        self._unwanted = [_halves(one[1:]) for one in patterns if one.startswith("^")]

    @lazy_property
    def request(self) -> bytes:
        """One exchange of protocol v2: where these refs stand, and where HEAD points to."""
        prefixes = ["HEAD", *(prefix for prefix, _ in self._wanted)]
        lines = (packet(f"ref-prefix {prefix}\n".encode()) for prefix in prefixes)
        return _LS_REFS + b"".join(lines) + b"0000"

    @property
    def exact(self) -> bool:
        """An upstream that is asked with `request` announces nothing else than these."""
        return self.patterns == USUAL

    def has(self, name: str) -> bool:
        return _any(name, self._wanted) and not _any(name, self._unwanted) and not name.startswith(OWN)

    def of(self, refs: Mapping[str, str]) -> dict[str, str]:
        return {name: oid for name, oid in refs.items() if self.has(name)}

    def refspecs(self, *, force: bool) -> list[str]:
        plus = "+" if force else ""
        specs = [one if one.startswith("^") else f"{plus}{one}:{one}" for one in self.patterns]
        return specs if self.exact else [*specs, f"^{OWN}*"]


def _halves(pattern: str) -> tuple[str, str | None]:
    """What stands before and after the `*`; None: there is no `*`."""
    prefix, star, suffix = pattern.partition("*")
    return prefix, suffix if star else None


def _any(name: str, patterns: list[tuple[str, str | None]]) -> bool:
    return any(
        name == prefix
        if suffix is None
        else name.startswith(prefix) and name.endswith(suffix) and len(name) >= len(prefix) + len(suffix)
        for prefix, suffix in patterns
    )
