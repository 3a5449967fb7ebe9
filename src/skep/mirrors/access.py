"""Mirrors as pages and `git clone` see them: in place on one machine, else as they were gathered."""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.base.answers import CommitView, FileView, Tree, TreeItem, Waited
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, NotFound, NotHere, TooLarge
from skep.benchmarks.api import Commit
from skep.fleet.members import Interest
from skep.sources.catalogue import published, refs_of
from skep.sources.git import browse
from skep.sources.git.browse import history, patch
from skep.sources.git.documents import Entry
from skep.sources.git.ls_refs import to_bytes
from skep.sources.model import Source
from skep.sources.service import Sources
from skep.storage.database import Database, Row

# What is mirrored here as one file, for whoever mirrors all of it: grokmirror's format, and its fingerprints.

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


#: larger files are not shown
SHOWN_LIMIT = 2_000_000
#: more changed paths are not told apart
CHANGED_LIMIT = 10_000
#: the ends of the paths that git asks for
_ENDS = ("info/refs", "git-upload-pack", "git-receive-pack")
#: a proxy on the way may have made one slash of two
_SCHEME = re.compile(r"(https?|ssh|git):/+")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_KINDS = {0o120000: "link", 0o160000: "submodule", 0o040000: "folder"}


class Repository(msgspec.Struct, frozen=True):
    """What a git client asks for."""

    source: Source
    folder: Path
    rest: str
    #: it was asked by a name that the source has no more
    moved: bool


class Gather:
    def __init__(
        self, sources: Sources, mirror: Callable[[str], Path], interest: Interest, manifests: Manifests
    ) -> None:
        self.manifests = manifests
        self._sources = sources
        self._interest = interest
        #: where a source's mirror is, or will be
        self._where = mirror

    async def tree(self, caller: Caller, ref: str, path: str = "", rev: str = "") -> Tree:
        source, folder, commit = await self._at(caller, ref, rev)
        entries = await browse.ls(folder, commit, _meant(path))
        base = path.strip("/")
        return Tree(source, commit, base, [_item(entry, base) for entry in entries])

    async def file(self, caller: Caller, ref: str, path: str, rev: str = "") -> FileView:
        source, folder, commit = await self._at(caller, ref, rev)
        blob = await browse.blob(folder, commit, _meant(path), SHOWN_LIMIT)
        path = path.strip("/")
        if blob.content is not None and blob.entry.mode == 0o120000:
            return FileView(source, commit, path, blob.size, None, link=_shown(blob.content))
        binary = blob.content is None or b"\0" in blob.content[:8192]
        text = None if binary or blob.content is None else blob.content.decode("utf-8", "replace")
        return FileView(source, commit, path, blob.size, text)

    async def changed(self, caller: Caller, ref: str, old: str, new: str) -> list[str] | None:
        """Paths that differ between two commits (`old` empty: all); None: too many, or the commits are gone."""
        source = await self._sources.show(caller, ref)
        paths = await browse.changed(self._mirror(source), old, new, CHANGED_LIMIT)
        return None if paths is None else [_shown(path) for path in paths]

    async def history(self, caller: Caller, ref: str, new: str, old: str = "") -> list[Commit]:
        """First-parent commits, oldest first."""
        return await history(self._mirror(await self._sources.show(caller, ref)), new, old)

    async def commit(self, caller: Caller, ref: str, rev: str) -> CommitView:
        source, folder, commit = await self._at(caller, ref, rev)
        (one,) = await history(folder, commit, most=1)
        return CommitView(source, one, await patch(folder, one, SHOWN_LIMIT))

    async def wait(
        self, caller: Caller, ref: str, *, commit: str = "", looked_after: float = 0.0, timeout: float = 30.0
    ) -> Waited:
        """Until the source is searchable, at its newest commit or at `commit`. Of other branches than the default one,
        which are not searched, a commit only has to be here."""
        if commit and not _COMMIT.fullmatch(commit):
            raise BadInput(f"{commit[:80]!r} is no commit", hint="give 7 to 64 hexadecimal digits")

        seen: dict[tuple[object, ...], bool] = {}

        async def ready(source: Source) -> bool:
            # who waits is woken by every source: git is asked only when this one has moved
            at = (source.indexed_commit, source.last_fetched)
            if at not in seen:
                seen[at] = await self._has(source, commit)
            return seen[at]

        found, settled = await self._sources.wait(
            caller, ref, looked_after=looked_after, timeout=timeout, ready=ready if commit else None
        )
        return Waited(found, settled)

    async def _has(self, source: Source, commit: str) -> bool:
        folder = self._mirror(source)
        full = await browse.resolve(folder, commit)
        if full is None:
            return False
        if source.indexed_commit and await browse.reaches(folder, source.indexed_commit, full):
            return True
        head = await browse.resolve(folder, "HEAD")
        if head and await browse.reaches(folder, head, full):
            return False  # fetched, and not indexed yet
        return await browse.on_some_ref(folder, full)

    async def find_git(self, caller: Caller, path: str) -> Repository:
        """`/<name, id or URL>[.git]/<rest>`."""
        name, rest = _split(path)
        try:
            source = await self._sources.show(caller, name)
        except NotFound:
            # a bare local repository has its .git in its name, and people do not write it twice
            source = await self._sources.show(caller, f"{name}.git")
        self._interest.note([source.id])
        moved = name not in (source.id, source.name) and await self._sources.is_former(name)
        return Repository(source, self._mirror(source), rest, moved)

    async def _at(self, caller: Caller, ref: str, rev: str) -> tuple[Source, Path, str]:
        source = await self._sources.show(caller, ref)
        folder = self._mirror(source)
        commit = await browse.resolve(folder, rev or "HEAD")
        if commit is None and rev:
            raise NotFound(f"there is no branch, tag or commit {rev!r} in {source.name}")
        if commit is None:
            raise NotFound(f"{source.name} has no commits yet")
        return source, folder, commit

    def _mirror(self, source: Source) -> Path:
        folder = self._where(source.id)
        if not folder.exists():
            if source.last_fetched is None:
                raise NotHere(f"{source.name} has not been mirrored yet", hint="its page says how far it is")
            hint = "`skep status` says which labels each server is for"
            raise NotHere(f"{source.name} is not on this server, or not yet", hint=hint)
        return folder


def _split(path: str) -> tuple[str, str]:
    path = path.lstrip("/")
    name, rest = next(((path.removesuffix(f"/{end}"), end) for end in _ENDS if path.endswith(f"/{end}")), ("", ""))
    if not name:
        name, _, rest = path.rpartition(".git/")
    if not name:
        raise NotFound(f"{path!r} names no repository", hint="clone /git/<name>.git")
    return _SCHEME.sub(r"\1://", name.removesuffix(".git"), count=1), rest


def _item(entry: Entry, base: str) -> TreeItem:
    name = _shown(entry.path)
    return TreeItem(name, f"{base}/{name}" if base else name, _KINDS.get(entry.mode, "file"), entry.size)


def _shown(path: bytes) -> str:
    """Bytes that are no UTF-8 are written as \\xNN, everywhere where people see or type a path."""
    return path.decode("utf-8", "backslashreplace")


def _meant(path: str) -> str:
    return to_bytes(path).decode("utf-8", "surrogateescape")
