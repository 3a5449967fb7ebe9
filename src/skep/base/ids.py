"""Ids: made once, never from a URL or an address. A change's id is a hash, so that a repeat is recognised."""

import base64
import hashlib
import secrets

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(prefix: str, now: float) -> str:
    """`prefix_` + ULID: sorts by time of making, random below the millisecond."""
    return new_ids(prefix, now, 1)[0]


def new_ids(prefix: str, now: float, count: int) -> list[str]:
    """Ids that sort in the order of the list."""
    first = int(now * 1000) << 80 | secrets.randbits(79)
    return [
        prefix + "_" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -5, -5))
        for number in range(first, first + count)
    ]


def change_id(source: str, entry: str, seq: int) -> str:
    return "chg_" + _digest(source, entry, str(seq))


def batch_id(source: str, epoch: int, count: int) -> str:
    """`count` is the holder's own counter of batches for this source."""
    return "bat_" + _digest(source, str(epoch), str(count))


def failure_id(source: str, at: float) -> str:
    return "flr_" + _digest(source, repr(at))


def match_id(search: str, source: str, commit: str, fetched_at: float, path: str) -> str:
    """Of what one change brought to one file, for one saved search."""
    return "mat_" + _digest(search, source, commit, repr(fetched_at), path)


def result_id(task: str, attempt: int, number: int) -> str:
    return "res_" + _digest(task, str(attempt), str(number))


def _digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return base64.b32encode(hashlib.blake2b(text, digest_size=20).digest()).decode().lower()
