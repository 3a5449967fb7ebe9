"""Mirrors as pages and `git clone` see them: in place on one machine, else as they were gathered."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.errors import BadInput, NotFound, NotHere
from skep.fleet.interest import Interest
from skep.gather.manifest import Manifests
from skep.model.answers import CommitView, FileView, Tree, TreeItem, Waited
from skep.model.benchmark import Commit
from skep.model.caller import Caller
from skep.model.source import Source
from skep.sources.git import browse
from skep.sources.git.history import history, patch
from skep.sources.git.pktline import to_bytes
from skep.sources.git.read import Entry
from skep.sources.service import Sources

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
