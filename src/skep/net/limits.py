"""When a host that counts requests lets us in again: what GitHub, GitLab and their like say beside Retry-After."""

from collections.abc import Sequence
from email.utils import parsedate_to_datetime

#: a larger number is a time since 1970, a smaller one a number of seconds
_TIMES_FROM = 1_000_000_000


def pause(lines: Sequence[bytes]) -> int:
    """Seconds, from the lines of a reply's head; 0 when nothing is said or something is left."""
    said = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        said[name.strip().lower().removeprefix("x-")] = value.strip()
    reset = said.get("ratelimit-reset", "")
    if said.get("ratelimit-remaining") != "0" or not (reset.isascii() and reset.isdigit() and len(reset) < 12):
        return 0
    return max(1, int(reset) - _date(said.get("date", ""))) if int(reset) > _TIMES_FROM else max(1, int(reset))


def _date(value: str) -> int:
    """The host's own clock, so that ours does not matter; without it, no time can be told."""
    try:
        return int(parsedate_to_datetime(value).timestamp())
    except (ValueError, OverflowError):
        return 10**12
