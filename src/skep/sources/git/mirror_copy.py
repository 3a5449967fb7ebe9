"""A mirror copied from another machine's mirror of the same source: every ref as it stands there, deletions too.

Whoever gives it may let go of it meanwhile, and git takes the refs of a folder that is being removed for all there are.
So a copy counts only when it is what was announced, and when nothing that was told of the source is missing in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import msgspec

from skep.base.errors import Unavailable
from skep.sources.git import repository
from skep.sources.git.ls_refs import LARGEST_ANSWER, BadAnswer, Refs, parse_ls_remote, selection
from skep.sources.git.mirror import Mirror, Policy, Upstream, fetch_environment
from skep.sources.git.process import Opened, SaidTooMuch, TookTooLong, failure_of, reached, run
from skep.sources.git.repository import KEPT, locked
from skep.sources.model import Failure
from skep.sources.source_type import Report

_ALL = selection(("refs/*",))
_BREAKS = 4
_FIRST_PAUSE = 0.1
#: commits of the first step, once a copy has broken off; each next one is twice as many
_STEP = 1_000
#: entry -> version: what the coordinator was told of the source so far
Told = Callable[[], Awaitable[Mapping[str, str]]]


class Bounds(msgspec.Struct, frozen=True):
    #: of one git process
    seconds: float
    #: bytes one pack may have
    largest: int
    #: how often it may break off without anything new having arrived; each time there is less to lose
    breaks: int = _BREAKS


async def fetch_through(
    folder: Path, url: str, opened: Opened, told: Told, bounds: Bounds, report: Report, now: float
) -> Mapping[str, str] | Failure:
    """Bring the mirror in `folder` to what `opened` leads to; entry -> version, durable on return.

    A SkepError is the other side's: it does not hold the source, or cannot be reached.
    """
    copy = _Copy(Mirror(folder), url, opened, told, bounds, report, now)
    breaks, arrived = 0, await copy.arrived()
    while True:
        step = _STEP // 4 ** (breaks - 1) if breaks else 0
        try:
            found = await copy.once(step)
        except (Unavailable, TookTooLong, SaidTooMuch, BadAnswer) as error:
            if isinstance(error, Unavailable) and breaks == bounds.breaks:
                raise
            found = Failure("network", f"{url}: {error}")
        if not isinstance(found, Failure) or found.kind != "network" or breaks == bounds.breaks:
            return found
        before, arrived = arrived, await copy.arrived()
        breaks = breaks + 1 if arrived == before else 1
        await asyncio.sleep(_FIRST_PAUSE * 2**breaks)


async def nothing_told() -> Mapping[str, str]:
    """For whoever takes what there is, however old."""
    return {}


class _Copy:
    def __init__(
        self, mirror: Mirror, url: str, opened: Opened, told: Told, bounds: Bounds, report: Report, now: float
    ) -> None:
        self._mirror = mirror
        self._url = url
        self._opened = opened
        self._told = told
        self._bounds = bounds
        self._report = report
        self._now = now
        self._env = fetch_environment("fd", (), {})

    async def once(self, step: int) -> Mapping[str, str] | Failure:
        told, there = await self._told(), await self._announced()
        if isinstance(there, Failure):
            return there
        versions = there.versions(_ALL.of)
        if lost := sorted(told.keys() - versions.keys()):
            return self._again(f"whoever has it lacks {len(lost)} of {len(told)} entries, such as {lost[0]}")
        largest, seconds = self._bounds.largest, self._bounds.seconds
        policy = Policy(_ALL, "follow", "", keep=0.0, largest=largest, huge=largest, seconds=seconds, step=step)
        upstream = Upstream(self._url, "", self._env, versions, self._opened)
        await self._mirror.create(self._url, there.oids)
        found = await self._mirror.fetch(upstream, policy, self._report, self._now)
        if isinstance(found, Failure):
            return found
        if found != versions:
            return self._again("what was announced did not come")
        if failure := await self._keep({name for name in there.oids if name.startswith(KEPT)}):
            return failure
        # whoever has it may be ahead of what was told, and is about to tell it
        if not told.items() <= found.items() and not (await self._told()).items() <= found.items():
            return self._again("whoever has it is not where it was told to be")
        return found

    def _again(self, reason: str) -> Failure:
        return Failure("network", f"{self._url}: {reason}")

    async def arrived(self) -> object:
        """Differs when a copy that broke off has nevertheless brought something."""
        folder = self._mirror.folder
        shallow = folder / "shallow"
        return await asyncio.to_thread(repository.read_all, folder), shallow.exists() and shallow.read_bytes()

    async def _announced(self) -> Refs | Failure:
        async with reached(self._opened) as (url, descriptor):
            args, seconds = ("ls-remote", "--symref", "--", url), self._bounds.seconds
            done = await run(args, self._env, seconds=seconds, largest=LARGEST_ANSWER, keep=(descriptor,))
        return failure_of(done, self._url) if done.code else parse_ls_remote(done.out)

    async def _keep(self, kept: Collection[str]) -> Failure | None:
        """Old tips are kept there under hidden names, and so they are here."""
        folder = self._mirror.folder
        async with locked(folder) as here:
            held = {name for name in repository.read_all(folder) if name.startswith(KEPT)}
            await here.delete(held.difference(kept))
            if held.issuperset(kept):
                return None
            async with reached(self._opened) as (url, descriptor):
                fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
                args = ("-C", str(folder), *fetch, "--", url, f"+{KEPT}*:{KEPT}*")
                done = await run(args, self._env, seconds=self._bounds.seconds, keep=(here.lock, descriptor))
            if done.code:
                return failure_of(done, self._url)
            await here.git("pack-refs", "--all")
            return None if repository.read_all(folder).keys() >= set(kept) else self._again("old tips did not come")
