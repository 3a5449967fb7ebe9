"""The first-parent history of a mirror: what a series of measurements runs along."""

from pathlib import Path

from skep.errors import NotFound
from skep.model.benchmark import Commit
from skep.sources.git.browse import resolve
from skep.sources.git.process import SaidTooMuch, environment, run

_SECONDS = 60.0
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
    done = await run(args, environment(), seconds=_SECONDS, largest=256 << 20)
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
        done = await run(args, environment(), seconds=_SECONDS, largest=limit)
    except SaidTooMuch:
        return None
    return done.out.decode("utf-8", "replace")


async def _commit(folder: Path, rev: str) -> str:
    commit = await resolve(folder, rev)
    if commit is None:
        raise NotFound(f"there is no branch, tag or commit {rev!r} in the mirror")
    return commit
