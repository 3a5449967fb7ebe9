"""One mirror: a bare repository on disk that follows an upstream.

Nothing half-done is ever visible: a mirror appears by rename, refs move in one transaction, and what a killed process
leaves behind is swept away under the mirror's lock. Git children inherit the lock, so that the orphan of a killed
worker still holds it.
"""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from skep.base.io import sync_folders
from skep.sources.git import repository
from skep.sources.git.ls_refs import Selection, choose_head
from skep.sources.git.process import Opened, Result, TookTooLong, environment, failure_of, is_ref_conflict, reached, run
from skep.sources.git.repository import Locked, emptied, locked, rewritten
from skep.sources.model import Failure, ForcePush, Progress
from skep.sources.source_type import Report
from skep.tasks.task_types import checked_source

# The git fetch of a mirror: all refs or none, whole or, where that would be huge, its newest commit first.

_FETCH = (
    *("fetch", "--progress", "--atomic", "--no-tags", "--no-auto-maintenance", "--no-write-fetch-head"),
    "--no-recurse-submodules",
)
#: mistakes of old tools that sit in real histories and harm nobody
OLD_SINS = (
    *("zeroPaddedFilemode", "badTimezone", "badDate", "badDateOverflow", "badEmail", "badName", "badTagName"),
    *("nullSha1", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingNameBeforeEmail", "missingEmail"),
    *("missingTaggerEntry", "multipleAuthors"),
)
_CONFIG = (
    ("fetch.fsckObjects", "true"),
    *((f"fetch.fsck.{sin}", "ignore") for sin in OLD_SINS),
    ("fetch.unpackLimit", "1"),
    ("core.fsync", "objects"),
    ("http.followRedirects", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
)
#: commits
_SHORTEST_STEP, _LONGEST_STEP = 1_000, 50_000
_PROGRESS = re.compile(r"(Receiving objects|Resolving deltas): +(\d+)%")


class Upstream(msgspec.Struct, frozen=True):
    """Where to fetch from, and what is there."""

    #: as people know it
    name: str
    url: str
    env: Mapping[str, str]
    announced: Mapping[str, str]
    #: it is another machine's mirror, reached through this instead of by a URL
    opened: Opened | None = None


class Policy(msgspec.Struct, frozen=True):
    """How a mirror follows."""

    wanted: Selection
    force_push: ForcePush
    #: the loss a person has accepted
    accepted: str
    #: seconds that old tips are kept
    keep: float
    #: bytes one pack may have
    largest: int
    #: bytes a first pack may have before only its newest commit is fetched; 0: it is known to be larger
    huge: int
    seconds: float
    #: commits to begin with, where the connection is not expected to last; 0: all at once
    step: int = 0


def fetch_environment(protocols: str, config: Iterable[tuple[str, str]], extra: Mapping[str, str]) -> dict[str, str]:
    return environment((*_CONFIG, *config), protocols=protocols, extra=extra)


async def bring(
    here: Locked, upstream: Upstream, policy: Policy, gone: Sequence[str], report: Report, *, first: bool
) -> Failure | None:
    """Move the refs to what upstream has."""
    fetch = _Fetch(here, upstream, policy, _progress("clone" if first else "fetch", report))
    if policy.step and (failure := await fetch.in_steps(policy.step)):
        return failure
    head = upstream.announced.get("HEAD", "")
    if head not in upstream.announced:
        head = ""
    if first and head and policy.huge < policy.largest:
        return await _newest_first(fetch, here, policy, head)
    flags: list[str] = []
    if before := _boundary(here):
        failure = await fetch.deepen(head) if head else None
        after = _boundary(here)
        if failure is not None or after not in (b"", before):
            return failure
        flags = ["--unshallow"] if after else []
    failure = await fetch.once(flags, limit=policy.largest, gone=gone)
    if failure is not None and failure.loss and failure.loss == policy.accepted:
        return await fetch.once(flags, limit=policy.largest, gone=gone, force=True)
    return failure


async def _newest_first(fetch: "_Fetch", here: Locked, policy: Policy, head: str) -> Failure | None:
    """All of it or, when that is huge, the newest commit of the default branch."""
    if policy.huge:
        try:
            failure = await fetch.once((), limit=policy.huge)
        except TookTooLong as slow:
            failure = Failure("too_big", str(slow))
        if failure is None or failure.kind != "too_big":
            return failure
        await asyncio.to_thread(repository.sweep, here.folder)
    return await fetch.once(["--depth=1"], limit=policy.largest, only=head)


def _boundary(here: Locked) -> bytes:
    """Where the history of a mirror ends that is not whole; empty: it is whole."""
    try:
        return (here.folder / "shallow").read_bytes()
    except FileNotFoundError:
        return b""


class _Fetch:
    def __init__(self, here: Locked, upstream: Upstream, policy: Policy, hear: Callable[[str], None]) -> None:
        self._here = here
        self._upstream = upstream
        self._policy = policy
        self._hear = hear

    async def once(
        self, flags: Sequence[str], *, limit: int, gone: Sequence[str] = (), only: str = "", force: bool = False
    ) -> Failure | None:
        force = force or self._policy.force_push != "ask"
        refspecs = [f"{'+' if force else ''}{only}:{only}"] if only else self._policy.wanted.refspecs(force=force)
        args = ["-C", str(self._here.folder), *_FETCH, *flags]
        done = await self._run(args, refspecs, limit)
        if is_ref_conflict(done):
            await self._here.delete(gone)
            args.remove("--atomic")
            done = await self._run(args, refspecs, limit)
        if not done.code:
            return None
        return rewritten(done, self._upstream.announced, self._upstream.name) or await self._broken_off(done, limit)

    async def deepen(self, head: str) -> Failure | None:
        """One step: the default branch becomes twice as deep. What it brought stays, whatever happens in the next."""
        counted = await self._here.git("rev-list", "--count", "--all")
        step = min(max(int(counted.out or 0), _SHORTEST_STEP), _LONGEST_STEP)
        failure = await self.once([f"--deepen={step}"], limit=self._policy.largest, only=head)
        # an old server brings it all at once
        return None if failure is not None and "does not support" in failure.message else failure

    async def in_steps(self, step: int) -> Failure | None:
        """The default branch, its newest commits first: what has arrived stays when a later step breaks off."""
        head, shallow = self._upstream.announced.get("HEAD", ""), self._here.folder / "shallow"
        flag = "--deepen" if shallow.exists() else "--depth"
        if not head or (flag == "--depth" and head in await asyncio.to_thread(repository.read, self._here.folder)):
            return None
        ends, before = b"", b"?"
        while ends != before:  # a holder's mirror may be shallow itself
            failure = await self.once([f"{flag}={step}"], limit=self._policy.largest, only=head)
            if failure is not None or not shallow.exists():
                return failure
            ends, before = shallow.read_bytes(), ends
            flag, step = "--deepen", 2 * step
        return None

    async def _run(self, args: Sequence[str], refspecs: Sequence[str], limit: int) -> Result:
        upstream = self._upstream
        if upstream.opened is None:
            return await self._git((*args, "--", upstream.url, *refspecs), limit)
        async with reached(upstream.opened) as (url, descriptor):
            return await self._git((*args, "--update-shallow", "--", url, *refspecs), limit, descriptor)

    async def _git(self, args: Sequence[str], limit: int, *keep: int) -> Result:
        env, seconds = self._upstream.env, self._policy.seconds
        keep = (self._here.lock, *keep)
        return await run(args, env, seconds=seconds, file_limit=limit, hear=self._hear, keep=keep)

    async def _broken_off(self, done: Result, limit: int) -> Failure:
        """A child that met its file limit dies without a word: the size of what it left tells."""
        packs = (self._here.folder / "objects/pack").glob("tmp_pack_*")
        too_big = any(pack.stat().st_size >= limit for pack in packs)
        await asyncio.to_thread(repository.sweep, self._here.folder)
        if too_big:
            return Failure("too_big", f"{self._upstream.name} is larger than `max_repository`")
        return failure_of(done, self._upstream.name)


def _progress(stage: Literal["clone", "fetch"], report: Report) -> Callable[[str], None]:
    def hear(line: str) -> None:
        if found := _PROGRESS.match(line):
            percent = int(found[2])
            done = percent * 8 // 10 if found[1].startswith("Rec") else 80 + percent // 5
            report(Progress(stage, done, 100))

    return hear


# What keeps a mirror small, quick and sound.

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


_QUICK = 600.0
#: what is still to be done for a mirror that can be read already
Todo = Literal["", "deepen", "repair"]


def folder_of(data: Path, source: str) -> Path:
    """`mirrors/ab/cd/<id>.git`; ids start with the time, so their random end spreads better."""
    checked_source(source)
    return data / "mirrors" / source[-2:].lower() / source[-4:-2].lower() / f"{source}.git"


class Mirror:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def todo(self) -> Todo:
        try:
            return "deepen" if (self.folder / "todo").read_bytes() == b"deepen" else "repair"
        except (FileNotFoundError, NotADirectoryError):
            return ""

    async def create(self, url: str, versions: Mapping[str, str]) -> None:
        """An empty mirror with the URL inside, so that a lost catalogue can be refilled."""
        if self.folder.exists():
            return
        new = self.folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.parent.mkdir(parents=True, exist_ok=True)
        long_ids = any(len(oid) == 64 for name, oid in versions.items() if name != "HEAD")
        form = "sha256" if long_ids else "sha1"
        args = ("init", "--quiet", "--bare", "--template=", f"--object-format={form}", "--", str(new))
        done = await run(args, environment(), seconds=_QUICK)
        if done.code:
            raise OSError(done.err.strip())
        if not long_ids:
            (new / "config").unlink()  # it says nothing that git does not find out by itself
        (new / "url").write_text(url + "\n", encoding="utf-8", errors="surrogateescape")
        new.rename(self.folder)
        sync_folders(*self.folder.parents[:3])

    async def fetch(self, upstream: Upstream, policy: Policy, report: Report, now: float) -> dict[str, str] | Failure:
        """Bring refs and HEAD to what upstream has; never below what it announced."""
        async with locked(self.folder) as here:
            await asyncio.to_thread(repository.sweep, self.folder)
            await repository.keep(here, now, policy.keep)
            before = await self.versions()
            held = policy.wanted.of(before)
            failure = emptied(held, upstream.announced, upstream.name, policy.accepted)
            if failure and not upstream.opened:  # whoever holds the source has asked a person already
                return failure
            if self.todo == "repair":
                return await self._make_again(upstream, policy, report, now)
            gone = [name for name in before if name not in upstream.announced and name != "HEAD"]
            moved = [name for name, oid in upstream.announced.items() if name != "HEAD" and before.get(name) != oid]
            if policy.force_push != "follow" and (tips := {n: held[n] for n in (*gone, *moved) if n in held}):
                repository.note(self.folder, tips)
            if moved or self.todo:
                failure = await bring(here, upstream, policy, gone, report, first=not before)
                if failure is not None:
                    return await self._suspect(failure, policy, here) if before else failure
            self._mark("deepen" if (self.folder / "shallow").exists() else "")
            await here.delete(gone)
            await repository.keep(here, now, policy.keep)
            return await self._settle(here, upstream, first=not before)

    async def versions(self) -> dict[str, str]:
        return await asyncio.to_thread(repository.read, self.folder)

    async def mend(self) -> Failure | None:
        """Sweep up after a killed process; wait for one that still lives."""
        shutil.rmtree(self.folder.with_suffix(".new"), ignore_errors=True)
        await asyncio.to_thread(shutil.rmtree, self._again.folder, ignore_errors=True)
        if not self.folder.exists():
            return None
        async with locked(self.folder):
            await asyncio.to_thread(repository.sweep, self.folder)
        return None

    async def check(self, seconds: float) -> Failure | None:
        """Damage is looked at twice before it is believed: a repack may have taken away what was being read."""
        failure = await check(self.folder, seconds) if self.folder.exists() else None
        if failure is not None and failure.kind == "corrupt":
            async with locked(self.folder) as here:
                failure = await check(self.folder, seconds, (here.lock,))
                if failure is not None and failure.kind == "corrupt":
                    self._mark("repair")
        return failure

    async def remove(self) -> None:
        if not self.folder.exists():
            return
        async with locked(self.folder):
            aside = self.folder.with_suffix(".removed")
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
            self.folder.rename(aside)
        await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)

    @property
    def _again(self) -> "Mirror":
        return Mirror(self.folder.with_name(f"{self.folder.stem}.again.git"))

    async def _make_again(
        self, upstream: Upstream, policy: Policy, report: Report, now: float
    ) -> dict[str, str] | Failure:
        """A damaged mirror is made anew beside itself, takes over the old tips that can be read, and is replaced."""
        again = self._again
        await again.remove()
        await again.create((self.folder / "url").read_text(encoding="utf-8").strip(), upstream.announced)
        versions = await again.fetch(upstream, policy, report, now)
        if not isinstance(versions, Failure):
            await repository.take_over(again.folder, self.folder)
            aside = self.folder.with_suffix(".removed")
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
            self.folder.rename(aside)
            again.folder.rename(self.folder)
            sync_folders(self.folder.parent)
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
        return versions

    async def _settle(self, here: Locked, upstream: Upstream, *, first: bool) -> dict[str, str] | Failure:
        """Follow upstream's HEAD, tidy up, and put it all on disk."""
        done = await here.git("pack-refs", "--all")
        if done.code:
            return failure_of(done, upstream.name)
        if head := choose_head(await self.versions(), upstream.announced.get("HEAD", "")):
            repository.set_head(self.folder, head)
        await tidy(here, first=first)
        sync_folders(self.folder, self.folder / "objects/pack")
        return await self.versions()

    async def _suspect(self, failure: Failure, policy: Policy, here: Locked) -> Failure:
        """Git finds something unsound: is it the upstream, or what we have?"""
        if failure.kind == "corrupt" and await check(self.folder, policy.seconds, (here.lock,)):
            self._mark("repair")
        return failure

    def _mark(self, todo: Todo) -> None:
        path = self.folder / "todo"
        if todo:
            path.write_text(todo)
        else:
            path.unlink(missing_ok=True)
