"""Pages of hits. Pure.

A page token names the files that were shown, and the lines of the last if it was begun only. The next page is the best
of all others, as the index is then: however it changes in between, what stays as it is comes once, and is never passed
over.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from skep.errors import BadInput
from skep.model.search import FileHit

#: files, and lines of a file that was begun, that a token can name; whoever wants more wants a stream
MOST_SHOWN = 1000
_MARK = 6


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """What earlier pages had."""

    #: lines of them together
    lines: int = 0
    #: a mark of each file
    files: bytes = b""
    #: numbers of the lines that the last file was shown with; none: with all
    begun: tuple[int, ...] = ()

    @staticmethod
    def read(token: str) -> "Shown":
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(token), type=Shown) if token else Shown()
        except (NotBase64, ValueError, msgspec.DecodeError):
            raise BadInput("this page token is none of ours", hint="give back `next_page` as it was") from None

    def token(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    def rest(self, hits: Sequence[FileHit]) -> list[FileHit]:
        """What was not shown yet, that which was begun first."""
        known = {self.files[at : at + _MARK] for at in range(0, len(self.files), _MARK)}
        if not known:
            return list(hits)
        begun = [self._unshown(hit) for hit in hits if self.begun and _mark(hit) == self.files[-_MARK:]]
        return [hit for hit in begun if hit.lines] + [hit for hit in hits if _mark(hit) not in known]

    def page(self, rest: Sequence[FileHit], lines: int) -> "tuple[list[FileHit], Shown]":
        """So many lines, and what has been shown after them."""
        page: list[FileHit] = []
        left, files = lines, self.files
        begun: tuple[int, ...] = ()
        for hit in rest:
            if left <= 0:
                break
            mark = _mark(hit)
            earlier = self.begun if mark == self.files[-_MARK:] else ()
            if len(hit.lines) > left:
                begun = (*earlier, *(line.number for line in hit.lines[:left]))
            page.append(_cut(hit, left))
            left -= size(page[-1:])
            files = files if earlier else files + mark
        return page, Shown(self.lines + lines - left, files, begun if len(begun) <= MOST_SHOWN else ())

    @property
    def is_full(self) -> bool:
        return len(self.files) >= MOST_SHOWN * _MARK

    def _unshown(self, hit: FileHit) -> FileHit:
        shown = frozenset(self.begun)
        return msgspec.structs.replace(hit, lines=tuple(line for line in hit.lines if line.number not in shown))


def size(hits: Sequence[FileHit]) -> int:
    """Lines; a file that is shown for its name is as much as one."""
    return sum(max(1, len(hit.lines)) for hit in hits)


def _cut(hit: FileHit, lines: int) -> FileHit:
    if len(hit.lines) <= lines:
        return hit
    return msgspec.structs.replace(hit, lines=hit.lines[:lines], more=True)


def _mark(hit: FileHit) -> bytes:
    return blake2b(f"{hit.source}\0{hit.path}".encode("utf-8", "surrogatepass"), digest_size=_MARK).digest()
