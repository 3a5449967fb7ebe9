"""The refs of a mirror, read from its files: no process, so that a worker can look over all it holds at start."""

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import gmtime, strftime

import msgspec

from skep.base.errors import Busy
from skep.base.io import sync_file
from skep.sources.git.ls_refs import OWN, choose_head, to_bytes, to_text
from skep.sources.git.process import Result, SaidTooMuch, environment, run
from skep.sources.model import Failure

# A mirror that nobody else changes for as long as one holds it. Git children inherit the lock.

_PATIENCE = 10.0
_QUICK = 600.0
#: refs are flushed once, when they are packed, and not one by one
_CONFIG = (("core.fsync", "all"),)


class Locked:
    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.lock = lock

    async def git(self, *args: str, input: bytes = b"", seconds: float = _QUICK) -> Result:
        args = ("-C", str(self.folder), *args)
        return await run(args, environment(_CONFIG), seconds=seconds, input=input, keep=(self.lock,))

    async def delete(self, names: Iterable[str]) -> bool:
        """All of them or, when False, none."""
        return await self._update(b"".join(b"delete %s\0\0" % to_bytes(name) for name in names))

    async def create(self, refs: Iterable[tuple[str, str]]) -> bool:
        return await self._update(b"".join(b"update %s\0%s\0\0" % (to_bytes(name), oid.encode()) for name, oid in refs))

    async def _update(self, lines: bytes) -> bool:
        return not lines or (await self.git("update-ref", "--stdin", "-z", input=lines)).code == 0


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[Locked]:
    """Busy when another process, perhaps the orphan of a killed worker, does not let go."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(int(_PATIENCE / 0.05)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        else:
            raise Busy(f"another git process is at work in {folder.name}", hint="it will be tried again")
        if os.fstat(lock).st_ino != os.stat(folder).st_ino:  # noqa: PTH116 - beside fstat
            raise Busy(f"{folder.name} was made anew meanwhile", hint="it will be tried again")
        yield Locked(folder, lock)
    finally:
        os.close(lock)


# What following an upstream would lose (pure): when a person is asked first, and what is kept under a hidden name.

#: fewer refs than these may all go at once without a person being asked, while some are left
_FEW_GONE = 10
_SHOWN = 5
KEPT = f"{OWN}kept/"
#: old tips one mirror keeps; the oldest go first
MOST_KEPT = 1_000
_REJECTED = re.compile(r"^ *! \[rejected\] +\S+ +-> (\S+)", re.MULTILINE)
_ACCEPT = "the mirror keeps what it has. If that is meant: `skep source accept`"


def emptied(before: Mapping[str, str], announced: Mapping[str, str], url: str, accepted: str) -> Failure | None:
    """An upstream that lost (nearly) everything is more often broken than meant."""
    held = [name for name in before if name != "HEAD"]
    gone = [name for name in held if name not in announced]
    if not held or (len(gone) < len(held) and (len(gone) * 2 <= len(held) or len(gone) < _FEW_GONE)):
        return None
    loss = _loss("emptied", gone)
    if loss == accepted:
        return None
    return Failure("emptied", f"{url} lost {len(gone)} of {len(held)} branches and tags; {_ACCEPT}", loss=loss)


def rewritten(done: Result, announced: Mapping[str, str], url: str) -> Failure | None:
    """What git refused to move, as that would not be forwards; None: it refused nothing."""
    names = sorted(set(_REJECTED.findall(done.err)))
    if not done.code or not names:
        return None
    full = {name: [f"refs/heads/{name}", f"refs/tags/{name}", name] for name in names}
    loss = _loss("rewritten", [f"{name} {announced.get(one)}" for name, forms in full.items() for one in forms])
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return Failure("rewritten", f"{url} rewrote the history of {shown}; {_ACCEPT}", loss=loss)


def kept_names(tips: Iterable[str], now: float) -> dict[str, str]:
    """tip -> the hidden name it is kept under. A fetch has a second of its own, so nothing is overwritten."""
    stamp = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    return {name: f"{KEPT}{stamp}/{name.removeprefix('refs/')}" for name in tips}


def expired(refs: Iterable[str], now: float, age: float) -> list[str]:
    """Kept names whose time is over, and the oldest of too many."""
    kept = sorted(name for name in refs if name.startswith(KEPT))
    oldest = strftime(f"{KEPT}%Y%m%dT%H%M%SZ", gmtime(max(0.0, now - age)))
    return [name for n, name in enumerate(kept) if name < oldest or n < len(kept) - MOST_KEPT]


def _loss(kind: str, what: Iterable[str]) -> str:
    return f"{kind}:{hashlib.blake2b(repr(sorted(what)).encode(), digest_size=12).hexdigest()}"


_HEX = set(b"0123456789abcdef")


def read(folder: Path) -> dict[str, str]:
    """entry -> version; `HEAD` -> the default branch while there is one. Empty when there is no mirror."""
    oids = {name: oid for name, oid in read_all(folder).items() if not name.startswith(OWN)}
    named = _content(os.fsencode(folder / "HEAD")).removeprefix(b"ref: ")
    head = choose_head(oids, to_text(named)) if oids else ""
    return {**oids, "HEAD": head} if head else oids


def read_all(folder: Path) -> dict[str, str]:
    """Ours too."""
    oids: dict[str, str] = {}
    with suppress(FileNotFoundError):
        for line in (folder / "packed-refs").read_bytes().splitlines():
            oid, _, name = line.partition(b" ")
            if _is_oid(oid):
                oids[to_text(name)] = oid.decode()
    root = os.fsencode(folder)
    for path in _files(folder / "refs"):
        content = _content(path)
        if _is_oid(content) and not path.endswith(b".lock"):
            oids[to_text(path[len(root) + 1 :])] = content.decode()
    return oids


def set_head(folder: Path, name: str) -> None:
    line = b"ref: %s\n" % to_bytes(name)
    if _content(os.fsencode(folder / "HEAD")) + b"\n" == line:
        return
    new = folder / "HEAD.new"
    with new.open("wb") as file:
        file.write(line)
        sync_file(file)
    new.replace(folder / "HEAD")


def sweep(folder: Path) -> None:
    """Remove what a killed git leaves behind. Only under the mirror's lock: then nobody owns these files."""
    for place in (folder, folder / "objects/info"):
        for lock in place.glob("*.lock"):
            lock.unlink(missing_ok=True)
    # git writes it beside its lock and refuses to begin while it is there
    (folder / "packed-refs.new").unlink(missing_ok=True)
    for path in list(_files(folder / "refs")):
        # a ref without content is what a power cut leaves of one that was being written
        if path.endswith(b".lock") or not _content(path):
            os.unlink(path)  # noqa: PTH108 - names are bytes
    packs = folder / "objects/pack"
    for pattern in ("tmp_*", ".tmp-*", "*.keep", "*.lock"):
        for rest in (*packs.glob(pattern), *(folder / "objects/info/commit-graphs").glob(pattern)):
            rest.unlink(missing_ok=True)
    for rest in (folder / "objects").glob("tmp_objdir-*"):
        shutil.rmtree(rest, ignore_errors=True)
    for rest in (folder / "objects").glob("??/tmp_obj_*"):
        rest.unlink(missing_ok=True)


def _files(root: Path) -> Iterator[bytes]:
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118 - names are bytes


def _content(path: bytes) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - names are bytes
            return file.read(4_096).strip()
    except FileNotFoundError:
        return b""


def _is_oid(text: bytes) -> bool:
    return len(text) in {40, 64} and set(text) <= _HEX


# Old tips: what an upstream rewrote or deleted stays in its mirror, under names that nobody is shown.

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
    standing = await asyncio.to_thread(read_all, here.folder)
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
    for name in sorted(read_all(old)):
        if name.startswith(KEPT):
            args = ("-C", str(folder), "fetch", "--quiet", "--no-tags", "--no-write-fetch-head")
            await run((*args, "--", str(old), f"+{name}:{name}"), env, seconds=_SECONDS)
