"""Pages of hits. Pure.

A page token names the files that were shown. The next page is the best of all others, as the index is then: however
it changes in between, a file that stays as it is comes once, and none is passed over.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from skep.errors import BadInput
from skep.model.search import FileHit

#: files a token can name; whoever wants more wants a stream
MOST_SHOWN = 1000
_MARK = 6
_LINES = 4


class Shown(msgspec.Struct, frozen=True):
    """What earlier pages had."""

    #: lines of them together
    lines: int = 0
    files: tuple[bytes, ...] = ()

    @staticmethod
    def read(token: str) -> "Shown":
        try:
            raw = urlsafe_b64decode(token)
        except (NotBase64, ValueError):
            raw = b"?"
        if token and (len(raw) % _MARK != _LINES or len(raw) > _LINES + MOST_SHOWN * _MARK):
            raise BadInput("this page token is none of ours", hint="give back `next_page` as it was")
        files = tuple(raw[at : at + _MARK] for at in range(_LINES, len(raw), _MARK))
        return Shown(int.from_bytes(raw[:_LINES], "big"), files)

    def token(self) -> str:
        return urlsafe_b64encode(self.lines.to_bytes(_LINES, "big") + b"".join(self.files)).decode()

    def rest(self, hits: Sequence[FileHit]) -> list[FileHit]:
        known = frozenset(self.files)
        return [hit for hit in hits if _mark(hit) not in known] if known else list(hits)

    def with_page(self, page: Sequence[FileHit]) -> "Shown":
        return Shown(self.lines + size(page), (*self.files, *(_mark(hit) for hit in page)))


def first_page(hits: Sequence[FileHit], lines: int) -> list[FileHit]:
    """As many whole files as have so many lines. One that alone has more is cut, and says so."""
    page: list[FileHit] = []
    left = lines
    for hit in hits:
        if left < (1 if page else 0) or (page and size([hit]) > left):
            break
        page.append(hit if size([hit]) <= left else msgspec.structs.replace(hit, lines=hit.lines[:left], more=True))
        left -= size([hit])
    return page


def size(hits: Sequence[FileHit]) -> int:
    """Lines; a file that is shown for its name is as much as one."""
    return sum(max(1, len(hit.lines)) for hit in hits)


def _mark(hit: FileHit) -> bytes:
    return blake2b(f"{hit.source}\0{hit.path}".encode("utf-8", "surrogatepass"), digest_size=_MARK).digest()
