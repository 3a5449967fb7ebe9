"""Looking into a mirror for pages: one folder, one file, what a name stands for. Every name comes from outside."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import msgspec

from skep.base.errors import Damaged, NotFound, TooLarge
from skep.benchmarks.api import Commit
from skep.sources.git.documents import Entry, entry_of
from skep.sources.git.ls_refs import OWN
from skep.sources.git.process import SaidTooMuch, end, environment, run, start

_SECONDS = 30.0
_MOST_LISTED = 32 << 20
#: what git never allows in a ref name; so no `a..b`, `x^{/regex}` or `:/text` gets through as one
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|^[./]|/$|\.$")
_OID = re.compile(r"[0-9a-f]{7,64}")


class Blob(msgspec.Struct, frozen=True):
    entry: Entry
    size: int
    #: None when it is larger than the limit
    content: bytes | None


async def resolve(folder: Path, rev: str) -> str | None:
    """The commit a branch, tag, full ref or (shortened) id stands for."""
    if not rev or len(rev) > 1_000 or _NO_REF.search(rev) or rev.startswith(OWN):
        return None
    names = [rev] if rev == "HEAD" or rev.startswith("refs/") else [f"refs/heads/{rev}", f"refs/tags/{rev}"]
    if _OID.fullmatch(rev):
        names.append(rev)
    asked = "".join(f"{name}^{{commit}}\n" for name in names).encode("utf-8", "surrogateescape")
    args = ("-C", str(folder), "cat-file", "--batch-check=%(objectname) %(objecttype)")
    done = await run(args, environment(), seconds=_SECONDS, input=asked)
    for line in done.out.decode("utf-8", "replace").splitlines():
        oid, _, kind = line.partition(" ")
        if kind == "commit":
            return oid
    return None


async def ls(folder: Path, commit: str, path: str = "") -> list[Entry]:
    """What stands directly in a folder, folders first; NotFound when there is none."""
    where = _path(path)
    args = ("-C", str(folder), "ls-tree", "-z", "--long", "--full-tree", f"{_id(commit)}:".encode() + where)
    try:
        done = await run(args, environment(), seconds=_SECONDS, largest=_MOST_LISTED)
    except SaidTooMuch:
        raise TooLarge(f"'{path}' holds too many files to list") from None
    if done.code:
        raise NotFound(f"there is no folder '{path}' at {commit[:12]}")
    entries = [entry_of(record) for record in done.out.split(b"\0") if record]
    return sorted(entries, key=lambda entry: (entry.kind != "tree", entry.path))


async def blob(folder: Path, commit: str, path: str, limit: int) -> Blob:
    """One file or symbolic link; NotFound when there is none."""
    where = _path(path)
    args = ("-C", str(folder), "ls-tree", "-z", "--long", "--full-tree", _id(commit), "--", where)
    done = await run(args, environment(), seconds=_SECONDS)
    entries = [entry_of(record) for record in done.out.split(b"\0") if record]
    found = next((entry for entry in entries if entry.path == where and entry.kind == "blob"), None)
    if found is None:
        raise NotFound(f"there is no file '{path}' at {commit[:12]}")
    size = found.size or 0
    if size > limit:
        return Blob(found, size, None)
    content = await run(("-C", str(folder), "cat-file", "blob", found.oid), environment(), seconds=_SECONDS)
    if content.code:
        raise NotFound(f"the content of '{path}' is missing in the mirror", hint="fetch the source again")
    return Blob(found, size, content.out)


async def changed(folder: Path, old: str, new: str, most: int) -> list[bytes] | None:
    """Paths that differ between two commits (`old` empty: all paths); None: more than `most`, or a commit is gone."""
    git = ("-C", str(folder))
    trees = "".join(f"{_id(oid)}^{{tree}}\n" for oid in (old, new) if oid)
    found = await run(
        (*git, "cat-file", "--batch-check=%(objecttype)"), environment(), seconds=_SECONDS, input=trees.encode()
    )
    if found.code:
        raise Damaged(f"{folder.name} cannot be read: {found.err[:400].strip()}", hint="fetch the source again")
    if set(found.out.split(b"\n")[:-1]) != {b"tree"}:
        return None
    how = ("diff-tree", "-r", "--no-renames", old, new) if old else ("ls-tree", "-r", "--full-tree", new)
    try:
        done = await run((*git, how[0], "-z", "--name-only", *how[1:]), environment(), seconds=_SECONDS)
    except SaidTooMuch:
        return None
    if done.code:
        raise Damaged(f"{folder.name} cannot be read: {done.err[:400].strip()}", hint="fetch the source again")
    paths = done.out.split(b"\0")[:-1]
    return None if len(paths) > most else paths


async def reaches(folder: Path, tip: str, commit: str) -> bool:
    """`commit` is part of the history of `tip`; False as well when the mirror does not have it."""
    args = ("-C", str(folder), "merge-base", "--is-ancestor", _id(commit), _id(tip))
    return (await run(args, environment(), seconds=_SECONDS)).code == 0


async def on_some_ref(folder: Path, commit: str) -> bool:
    args = ("-C", str(folder), "for-each-ref", "--count=1", f"--contains={_id(commit)}", "refs/heads", "refs/tags")
    return bool((await run(args, environment(), seconds=_SECONDS)).out)


def _id(commit: str) -> str:
    if not _OID.fullmatch(commit):
        raise NotFound("there is no such commit", hint="give the full id of a commit")
    return commit


def _path(path: str) -> bytes:
    raw = path.strip("/").encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise NotFound("there is no path with a zero byte")
    return raw


# The first-parent history of a mirror: what a series of measurements runs along.

_HISTORY_SECONDS = 60.0
#: commits of one history, the newest
MOST = 100_000
#: between two commits whose own times are out of order
_TICK = 0.001
_FORMAT = "%H%x00%P%x00%ct%x00%an%x00%s"


async def history(folder: Path, tip: str, after: str = "", most: int = MOST) -> list[Commit]:
    """Oldest first, up to a branch, tag or commit, from `after` on, or without what it has if it is no part of this.
    NotFound when there is no such commit."""
    ends = [await _commit(folder, rev) for rev in (tip, after) if rev]
    args = ["-C", str(folder), "log", "--first-parent", f"--max-count={most}", f"--format={_FORMAT}", ends[0], "--"]
    done = await run(args, environment(), seconds=_HISTORY_SECONDS, largest=256 << 20)
    if done.code:
        raise NotFound(f"the history of {tip!r} cannot be read: {done.err[:200].strip()}")
    found: list[Commit] = []
    latest = 0.0
    for line in reversed(done.out.decode("utf-8", "replace").splitlines()):
        id, parents, made, author, subject = line.split("\0", 4)
        latest = max(float(made), latest + _TICK)
        found.append(Commit(id, parents.partition(" ")[0], latest, author[:100], subject[:200]))
    if not after:
        return found
    known = {commit.id for commit in await history(folder, ends[1])} - {ends[1]}
    return [commit for commit in found if commit.id not in known]


async def patch(folder: Path, commit: Commit, limit: int) -> str | None:
    """What it changed since its first parent, as git shows it; None: more than `limit` bytes."""
    sides = [commit.parent, commit.id] if commit.parent else ["--root", commit.id]
    args = ["-C", str(folder), "diff-tree", "-r", "-p", "--stat", "--no-commit-id", "--no-ext-diff", "-M", *sides]
    try:
        done = await run(args, environment(), seconds=_HISTORY_SECONDS, largest=limit)
    except SaidTooMuch:
        return None
    return done.out.decode("utf-8", "replace")


async def _commit(folder: Path, rev: str) -> str:
    commit = await resolve(folder, rev)
    if commit is None:
        raise NotFound(f"there is no branch, tag or commit {rev!r} in the mirror")
    return commit


# The commits of a mirror, newest first, as git tells them; in lots, so that one may stop when there are enough.

_LOT = 1 << 18
#: bytes of one commit; a message is no place for more
_MOST = 16 << 20
_LOG_FORMAT = "%H%x00%ct%x00%an <%ae>%x00%B"
_FIELDS = 4


class Logged(NamedTuple):
    commit: str
    #: when it was committed
    at: float
    #: name and address
    author: bytes
    message: bytes


async def log(
    folder: Path, tips: Sequence[str], *, after: float | None = None, before: float | None = None
) -> AsyncGenerator[list[Logged], None]:
    """All that the tips, ids of commits, reach. Damaged when git cannot read them."""
    args = ["-C", str(folder), "log", "-z", f"--format={_LOG_FORMAT}"]
    if after is not None:
        args.append(f"--max-age={max(0, int(after))}")
    if before is not None:
        args.append(f"--min-age={max(0, int(before) - 1)}")
    child = await start([*args, "--end-of-options", *tips, "--"], environment(), quiet=True)
    assert child.stdin and child.stdout
    try:
        child.stdin.close()
        async with aclosing(_records(child.stdout)) as records:
            async for lot in records:
                yield [Logged(id.decode(), float(at), author, message) for id, at, author, message in lot]
        if await child.wait():
            raise Damaged(f"the commits of {folder.name} cannot be read", hint="fetch the source again")
    finally:
        await end(child)


async def _records(said: asyncio.StreamReader) -> AsyncGenerator[Iterator[tuple[bytes, ...]], None]:
    rest = b""
    while chunk := await said.read(_LOT):
        *fields, rest = (rest + chunk).split(b"\0")
        whole = len(fields) // _FIELDS * _FIELDS
        yield zip(*[iter(fields[:whole])] * _FIELDS, strict=True)
        rest = b"\0".join([*fields[whole:], rest])
        if len(rest) > _MOST:
            raise Damaged(f"a commit is larger than {_MOST >> 20} MB")
