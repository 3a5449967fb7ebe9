"""What keeps a mirror small, quick and sound."""

from contextlib import suppress
from pathlib import Path

from skep.model.source import Failure
from skep.sources.git.bringing import OLD_SINS
from skep.sources.git.locked import Locked
from skep.sources.git.process import TookTooLong, environment, run

_MANY_PACKS = 20
#: below, walking the history is quick without a commit-graph, and its files would be half of the mirror's
_WORTH_A_GRAPH = 4 << 20
_SOUND = tuple((f"fsck.{sin}", "ignore") for sin in OLD_SINS)


async def tidy(here: Locked, *, first: bool) -> None:
    """Packs grow in a geometric series, so that each fetch rewrites little; refs are in one file already."""
    folder = here.folder / "objects/pack"
    packs = list(folder.glob("*.pack"))
    many = len(packs) > _MANY_PACKS
    if many:
        await here.git("repack", "-d", "-q", "--geometric=2", "--write-midx")
    if many or (first and sum(pack.stat().st_size for pack in packs) > _WORTH_A_GRAPH):
        await here.git("commit-graph", "write", "--reachable", "--split", "--no-progress")
    for name in ("refs/heads", "refs/tags", "objects/info"):
        with suppress(OSError):
            (here.folder / name).rmdir()  # git makes it when it needs it; a million mirrors need the inodes


async def check(folder: Path, seconds: float, keep: tuple[int, ...] = ()) -> Failure | None:
    args = ("-C", str(folder), "fsck", "--full", "--no-dangling", "--no-progress")
    try:
        done = await run(args, environment(_SOUND), seconds=seconds, keep=keep)
    except TookTooLong:
        return Failure("internal", f"the mirror could not be checked within {seconds:g} s")
    if done.code == 0:
        return None
    said = (done.out.decode("utf-8", "backslashreplace") + done.err).strip().splitlines()
    return Failure("corrupt", f"the mirror is damaged: {'; '.join(said[:3]) or f'git fsck ended with {done.code}'}")


def pack_bytes(folder: Path) -> int:
    return sum(pack.stat().st_size for pack in (folder / "objects/pack").glob("*"))
