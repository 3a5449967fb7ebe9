"""One mirror: a bare repository on disk that follows an upstream.

Nothing half-done is ever visible: a mirror appears by rename, refs move in one transaction, and what a killed process
leaves behind is swept away under the mirror's lock. Git children inherit the lock, so that the orphan of a killed
worker still holds it.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from skep.disk import sync_folders
from skep.model.kinds import checked_source
from skep.model.source import Failure
from skep.sources.base import Report
from skep.sources.git import keeping, refs, upkeep
from skep.sources.git.bringing import Policy, Upstream, bring
from skep.sources.git.failures import failure_of
from skep.sources.git.locked import Locked, locked
from skep.sources.git.losses import emptied
from skep.sources.git.pktline import choose_head
from skep.sources.git.process import environment, run

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
            await asyncio.to_thread(refs.sweep, self.folder)
            await keeping.keep(here, now, policy.keep)
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
                keeping.note(self.folder, tips)
            if moved or self.todo:
                failure = await bring(here, upstream, policy, gone, report, first=not before)
                if failure is not None:
                    return await self._suspect(failure, policy, here) if before else failure
            self._mark("deepen" if (self.folder / "shallow").exists() else "")
            await here.delete(gone)
            await keeping.keep(here, now, policy.keep)
            return await self._settle(here, upstream, first=not before)

    async def versions(self) -> dict[str, str]:
        return await asyncio.to_thread(refs.read, self.folder)

    async def mend(self) -> Failure | None:
        """Sweep up after a killed process; wait for one that still lives."""
        shutil.rmtree(self.folder.with_suffix(".new"), ignore_errors=True)
        await asyncio.to_thread(shutil.rmtree, self._again.folder, ignore_errors=True)
        if not self.folder.exists():
            return None
        async with locked(self.folder):
            await asyncio.to_thread(refs.sweep, self.folder)
        return None

    async def check(self, seconds: float) -> Failure | None:
        """Damage is looked at twice before it is believed: a repack may have taken away what was being read."""
        failure = await upkeep.check(self.folder, seconds) if self.folder.exists() else None
        if failure is not None and failure.kind == "corrupt":
            async with locked(self.folder) as here:
                failure = await upkeep.check(self.folder, seconds, (here.lock,))
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
            await keeping.take_over(again.folder, self.folder)
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
            refs.set_head(self.folder, head)
        await upkeep.tidy(here, first=first)
        sync_folders(self.folder, self.folder / "objects/pack")
        return await self.versions()

    async def _suspect(self, failure: Failure, policy: Policy, here: Locked) -> Failure:
        """Git finds something unsound: is it the upstream, or what we have?"""
        if failure.kind == "corrupt" and await upkeep.check(self.folder, policy.seconds, (here.lock,)):
            self._mark("repair")
        return failure

    def _mark(self, todo: Todo) -> None:
        path = self.folder / "todo"
        if todo:
            path.write_text(todo)
        else:
            path.unlink(missing_ok=True)
