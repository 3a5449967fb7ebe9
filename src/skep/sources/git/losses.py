"""What following an upstream would lose (pure): when a person is asked first, and what is kept under a hidden name."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from time import gmtime, strftime

from skep.model.source import Failure
from skep.sources.git.process import Result
from skep.sources.git.selection import OWN

#: fewer refs than these may all go at once without a person being asked, while some are left
_FEW_GONE = 10
_SHOWN = 5
KEPT = f"{OWN}kept/"
#: old tips one mirror keeps; the oldest go first
MOST_KEPT = 1_000
_REJECTED = re.compile(r"^ *! \[rejected\] +\S+ +-> (\S+)", re.MULTILINE)
_ACCEPT = "the mirror keeps what it has. If that is meant: `skep source accept`"


def emptied(before: Mapping[str, str], announced: Mapping[str, str], url: str, accepted: str) -> Failure | None:
    """An upstream that lost (nearly) everything is more often broken than meant."""
    held = [name for name in before if name != "HEAD"]
    gone = [name for name in held if name not in announced]
    if not held or (len(gone) < len(held) and (len(gone) * 2 <= len(held) or len(gone) < _FEW_GONE)):
        return None
    loss = _loss("emptied", gone)
    if loss == accepted:
        return None
    return Failure("emptied", f"{url} lost {len(gone)} of {len(held)} branches and tags; {_ACCEPT}", loss=loss)


def rewritten(done: Result, announced: Mapping[str, str], url: str) -> Failure | None:
    """What git refused to move, as that would not be forwards; None: it refused nothing."""
    names = sorted(set(_REJECTED.findall(done.err)))
    if not done.code or not names:
        return None
    full = {name: [f"refs/heads/{name}", f"refs/tags/{name}", name] for name in names}
    loss = _loss("rewritten", [f"{name} {announced.get(one)}" for name, forms in full.items() for one in forms])
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return Failure("rewritten", f"{url} rewrote the history of {shown}; {_ACCEPT}", loss=loss)


def kept_names(tips: Iterable[str], now: float) -> dict[str, str]:
    """tip -> the hidden name it is kept under. A fetch has a second of its own, so nothing is overwritten."""
    stamp = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    return {name: f"{KEPT}{stamp}/{name.removeprefix('refs/')}" for name in tips}


def expired(refs: Iterable[str], now: float, age: float) -> list[str]:
    """Kept names whose time is over, and the oldest of too many."""
    kept = sorted(name for name in refs if name.startswith(KEPT))
    oldest = strftime(f"{KEPT}%Y%m%dT%H%M%SZ", gmtime(max(0.0, now - age)))
    return [name for n, name in enumerate(kept) if name < oldest or n < len(kept) - MOST_KEPT]


def _loss(kind: str, what: Iterable[str]) -> str:
    return f"{kind}:{hashlib.blake2b(repr(sorted(what)).encode(), digest_size=12).hexdigest()}"
