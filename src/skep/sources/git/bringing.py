"""The git fetch of a mirror: all refs or none, whole or, where that would be huge, its newest commit first."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from skep.model.source import Failure, ForcePush, Progress
from skep.sources.base import Report
from skep.sources.git import refs
from skep.sources.git.failures import failure_of, is_ref_conflict
from skep.sources.git.locked import Locked
from skep.sources.git.losses import rewritten
from skep.sources.git.process import Result, TookTooLong, environment, run
from skep.sources.git.selection import Selection
from skep.sources.git.through import Opened, reached

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
        await asyncio.to_thread(refs.sweep, here.folder)
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
        if not head or (flag == "--depth" and head in await asyncio.to_thread(refs.read, self._here.folder)):
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
        await asyncio.to_thread(refs.sweep, self._here.folder)
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
