"""Old tips: what an upstream rewrote or deleted stays in its mirror, under names that nobody is shown."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from skep.sources.git import refs
from skep.sources.git.locked import Locked
from skep.sources.git.losses import KEPT, expired, kept_names
from skep.sources.git.process import SaidTooMuch, environment, run

#: refs as they stood before a fetch; gone when their tips are kept or were not lost
_NOTE = "moving"
_SECONDS = 600.0


def note(folder: Path, tips: Mapping[str, str]) -> None:
    """Before refs move: a kill must not lose what they stood at."""
    (folder / _NOTE).write_bytes(msgspec.json.encode(tips))


async def keep(here: Locked, now: float, age: float) -> None:
    """Tips that were noted, have moved, and whose history nothing leads to any more get a hidden name."""
    path = here.folder / _NOTE
    try:
        noted = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return  # half a note was written before anything moved
    standing = await asyncio.to_thread(refs.read_all, here.folder)
    moved = {name: oid for name, oid in noted.items() if standing.get(name) != oid}
    # a tag is an object of its own: no branch leads to it
    lost = {name for name in moved if not name.startswith("refs/heads/")}
    lost |= await _unreachable(here, {name: moved[name] for name in moved.keys() - lost})
    if not await here.create((hidden, moved[name]) for name, hidden in kept_names(sorted(lost), now).items()):
        return  # the note stays for the next time
    if old := expired(standing, now, age):
        await here.delete(old)
        await here.git("repack", "-a", "-d", "-q")
    path.unlink()


async def _unreachable(here: Locked, tips: Mapping[str, str]) -> set[str]:
    if not tips:
        return set()
    args = ("rev-list", "--ignore-missing", "--stdin", "--not", f"--exclude={KEPT}*", "--all")
    try:
        done = await here.git(*args, input="".join(f"{oid}\n" for oid in tips.values()).encode())
    except SaidTooMuch:
        return set(tips)
    found = set(done.out.decode().split())
    return {name for name, oid in tips.items() if done.code or oid in found}


async def take_over(folder: Path, old: Path) -> None:
    """The tips that a damaged mirror kept, as far as they can still be read."""
    env = environment(protocols="file")
    for name in sorted(refs.read_all(old)):
        if name.startswith(KEPT):
            args = ("-C", str(folder), "fetch", "--quiet", "--no-tags", "--no-write-fetch-head")
            await run((*args, "--", str(old), f"+{name}:{name}"), env, seconds=_SECONDS)
