"""Looking into a mirror for pages: one folder, one file, what a name stands for. Every name comes from outside."""

import re
from pathlib import Path

import msgspec

from skep.errors import Damaged, NotFound, TooLarge
from skep.sources.git.process import SaidTooMuch, environment, run
from skep.sources.git.read import Entry, entry_of

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
    if not rev or len(rev) > 1_000 or _NO_REF.search(rev):
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
