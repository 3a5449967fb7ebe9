"""What is mirrored here as one file, for whoever mirrors all of it: grokmirror's format, and its fingerprints."""

import asyncio
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Row
from skep.errors import TooLarge
from skep.model.caller import Caller
from skep.sources.git.pktline import to_bytes
from skep.sources.views import published, refs_of

MOST = 100_000
#: for so long nobody asks the database again
_FRESH_SECONDS = 5.0
_AT_ONCE = 500


class Manifest(msgspec.Struct, frozen=True):
    body: bytes
    etag: str
    #: whole seconds, as HTTP counts them; no two manifests have the same
    made: int


class Manifests:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._lock = asyncio.Lock()
        #: source -> when it last changed, and its fingerprint then
        self._prints: dict[str, tuple[float, str]] = {}
        #: with private sources or without -> when it was looked at, and what was found
        self._kept: dict[bool, tuple[float, Manifest]] = {}

    async def of(self, caller: Caller) -> Manifest:
        """Of what the caller may see."""
        caller.need("read")
        private = caller.sees("private")
        async with self._lock:
            at, manifest = self._kept.get(private, (-_FRESH_SECONDS, None))
            now = self._clock.now()
            if manifest is None or not at <= now < at + _FRESH_SECONDS:
                manifest = await self._make(private, manifest)
                self._kept[private] = (now, manifest)
            return manifest

    async def _make(self, private: bool, before: Manifest | None) -> Manifest:
        rows = await published(self._db, private=private, most=MOST + 1)
        if len(rows) > MOST:
            raise TooLarge(f"more than {MOST:,} sources are too many for a manifest")
        await self._fingerprint(rows)
        said = {f"/{row['name']}.git": self._said(row) for row in rows}
        body = await asyncio.to_thread(_zipped, said)
        etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        if before is not None and before.etag == etag:
            return before
        return Manifest(body, etag, max(int(self._clock.now()), before.made + 1 if before else 0))

    async def _fingerprint(self, rows: Sequence[Row]) -> None:
        """Of those that changed since they were last asked for."""
        stale = [row for row in rows if self._prints.get(row["id"], (None, ""))[0] != row["last_changed"]]
        for start in range(0, len(stale), _AT_ONCE):
            chunk = stale[start : start + _AT_ONCE]
            refs = await refs_of(self._db, [row["id"] for row in chunk])
            self._prints |= {row["id"]: (row["last_changed"], fingerprint(refs.get(row["id"], {}))) for row in chunk}

    def _said(self, row: Row) -> dict[str, Any]:
        return {
            "fingerprint": self._prints[row["id"]][1],
            "modified": int(row["last_changed"]),
            "head": f"ref: refs/heads/{row['default_branch']}",
            "description": f"a mirror of {row['url']}",
            "owner": None,
            "reference": None,
        }


def fingerprint(refs: Mapping[str, str]) -> str:
    """As of what `git show-ref` prints."""
    lines = sorted((to_bytes(name), oid.encode()) for name, oid in refs.items())
    text = b"".join(b"%s %s\n" % (oid, name) for name, oid in lines)
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _zipped(said: Mapping[str, Any]) -> bytes:
    return gzip.compress(msgspec.json.encode(said), 6, mtime=0)
