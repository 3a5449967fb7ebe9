"""A manifest: one file in which a host says what repositories it has, and by their fingerprints which of them moved.

The format is grokmirror's: a JSON object from paths to what is said of each, zipped or plain.
"""

import asyncio
import zlib
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from skep.errors import BadInput, SkepError
from skep.model.source import SourceSettings
from skep.sources.lists.asking import Asking, Refused, body_of
from skep.sources.lists.forges import MOST, Listing
from skep.sources.lists.parse import MOST_PROBLEMS, Entry, ToAddress
from skep.sources.lists.yaml import Problem

_LARGEST = 256_000_000
#: what the manifest does not report is found out so often all the same
_RESTS = SourceSettings(poll_min=86_400.0)


class Manifest(msgspec.Struct, frozen=True):
    url: str
    #: where its paths begin, without a slash at its end
    base: str


class _Said(msgspec.Struct):
    fingerprint: str | None = None
    modified: Any = None


def manifest_of(text: str) -> Manifest | None:
    """`manifest:URL`, or `manifest:URL#BASE` where the paths do not begin beside it; None: it is something else."""
    if not text.startswith("manifest:"):
        return None
    url, _, base = text.removeprefix("manifest:").partition("#")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise BadInput(f"'{url[:80]}' is no address of a manifest", hint="write manifest:https://HOST/manifest.js.gz")
    return Manifest(url, (base or url.rpartition("/")[0]).rstrip("/"))


class Manifests:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def read(self, place: Manifest, validator: str, address: ToAddress) -> Listing | None:
        """None: it is still the one that had this validator."""
        reply = await self._asking.get(place.url, lambda key: key.header, validator=validator)
        if reply.status == 304 and validator:
            return None
        body = body_of(reply, urlsplit(place.url).netloc, f"there is no manifest at {place.url}")
        return await asyncio.to_thread(_parse, place, body, reply.validator, address)


def _parse(place: Manifest, body: bytes, validator: str, address: ToAddress) -> Listing:
    try:
        found = msgspec.json.decode(_plain(body), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, zlib.error, UnicodeDecodeError):
        raise Refused(f"{place.url} is no manifest") from None
    if len(found) > MOST:
        raise Refused(f"{place.url} names more than {MOST:,} repositories; that is no list for Skep")
    entries: list[Entry] = []
    problems: list[Problem] = []
    for path, raw in found.items():
        try:
            said = msgspec.json.decode(raw, type=_Said)
            mark = said.fingerprint or f"modified {said.modified}"
            where = address(place.base + _quoted(path))
            entries.append(Entry(path, where, settings=_RESTS, fingerprint=mark[:100]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            problems.append(Problem(0, f"'{path[:80]}': what is said of it cannot be understood"))
        except SkepError as error:
            problems.append(Problem(0, f"'{path[:80]}': {error.message}"))
    return Listing(entries, problems[:MOST_PROBLEMS], (validator,))


def _plain(body: bytes) -> bytes:
    if body[:2] != b"\x1f\x8b":
        return body
    unzip = zlib.decompressobj(31)
    plain = unzip.decompress(body, _LARGEST)
    if not unzip.eof:
        raise zlib.error("it breaks off, or is too large")
    return plain


def _quoted(path: str) -> str:
    parts = path.split("/")
    if len(path) > 1_000 or not path.isprintable() or parts[0] or not set(parts[1:]).isdisjoint(("", ".", "..")):
        raise BadInput("this is no path of a repository")
    return quote(path)
