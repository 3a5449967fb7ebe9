"""One mirror: a bare repository on disk that follows an upstream.

Nothing half-done is ever visible: a mirror appears by rename, refs move in one transaction, and what a killed process
leaves behind is swept away under the mirror's lock. Git children inherit the lock, so that the orphan of a killed
worker still holds it.
"""

import asyncio
import fcntl
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from skep.errors import Busy
from skep.model.source import Failure, Progress
from skep.sources.base import Report
from skep.sources.git import refs
from skep.sources.git.failures import failure_of, is_ref_conflict
from skep.sources.git.pktline import choose_head, to_bytes
from skep.sources.git.process import Result, TookTooLong, environment, run

_FETCH = (
    *("fetch", "--progress", "--atomic", "--no-tags", "--no-auto-maintenance", "--no-write-fetch-head"),
    "--no-recurse-submodules",
)
_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_MANY_PACKS = 20
#: fewer refs than these may all go at once without a person being asked, while some are left
_FEW_GONE = 10
_PATIENCE = 10.0
_QUICK = 600.0
#: mistakes of old tools that sit in real histories and harm nobody
_OLD_SINS = (
    *(
        "zeroPaddedFilemode",
        "badTimezone",
        "badDate",
        "badDateOverflow",
        "badEmail",
        "badName",
        "badTagName",
        "nullSha1",
    ),
    *(
        "missingSpaceBeforeDate",
        "missingSpaceBeforeEmail",
        "missingNameBeforeEmail",
        "missingEmail",
        "missingTaggerEntry",
    ),
    "multipleAuthors",
)
_FETCH_CONFIG = (
    ("fetch.fsckObjects", "true"),
    *((f"fetch.fsck.{sin}", "ignore") for sin in _OLD_SINS),
    ("fetch.unpackLimit", "1"),
    ("core.fsync", "objects"),
    ("http.followRedirects", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
)
#: refs are flushed once, when they are packed, and not one by one
_PACK_CONFIG = (("core.fsync", "all"),)
_PROGRESS = re.compile(r"(Receiving objects|Resolving deltas): +(\d+)%")


def folder_of(data: Path, source: str) -> Path:
    """`mirrors/ab/cd/<id>.git`; ids start with the time, so their random end spreads better."""
    return data / "mirrors" / source[-2:].lower() / source[-4:-2].lower() / f"{source}.git"


class Mirror:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        (new / "url").write_text(url + "\n", encoding="utf-8", errors="surrogateescape")
        new.rename(self.folder)
        refs.flush_folders(*self.folder.parents[:3])

    async def fetch(
        self,
        url: str,
        announced: Mapping[str, str],
        env: Mapping[str, str],
        report: Report,
        *,
        largest: int,
        seconds: float,
    ) -> dict[str, str] | Failure:
        """Bring branches, tags and HEAD to what upstream has; never below what `announced` still has."""
        async with self._locked() as lock:
            await asyncio.to_thread(refs.sweep, self.folder)
            before = await self.versions()
            if failure := emptied(before, announced, url):
                return failure
            gone = [name for name in before if name not in announced and name != "HEAD"]
            if any(before.get(name) != oid for name, oid in announced.items() if name != "HEAD"):
                hear = _progress("fetch" if before else "clone", report)
                args = ["-C", str(self.folder), *_FETCH, "--", url, *_REFSPECS]
                done = await run(args, env, seconds=seconds, file_limit=largest, hear=hear, keep=(lock,))
                if is_ref_conflict(done):
                    await self._delete(gone, lock)
                    args.remove("--atomic")
                    done = await run(args, env, seconds=seconds, file_limit=largest, hear=hear, keep=(lock,))
                if done.code:
                    return await self._broken_off(done, url, largest)
            return await self._settle(gone, announced.get("HEAD", ""), url, lock)

    async def versions(self) -> dict[str, str]:
        return await asyncio.to_thread(refs.read, self.folder)

    async def mend(self) -> Failure | None:
        """Sweep up after a killed process; wait for one that still lives."""
        shutil.rmtree(self.folder.with_suffix(".new"), ignore_errors=True)
        if not self.folder.exists():
            return None
        async with self._locked():
            await asyncio.to_thread(refs.sweep, self.folder)
        return None

    async def check(self, seconds: float) -> Failure | None:
        args = ["-C", str(self.folder), "fsck", "--full", "--no-dangling", "--no-progress"]
        try:
            done = await run(args, environment(), seconds=seconds)
        except TookTooLong:
            return Failure("internal", f"the mirror could not be checked within {seconds:g} s")
        if done.code == 0:
            return None
        said = (done.out.decode("utf-8", "backslashreplace") + done.err).strip().splitlines()
        return Failure("corrupt", f"the mirror is damaged: {'; '.join(said[:3]) or f'git fsck ended with {done.code}'}")

    async def remove(self) -> None:
        if not self.folder.exists():
            return
        async with self._locked():
            aside = self.folder.with_suffix(".removed")
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
            self.folder.rename(aside)
        await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)

    async def _settle(self, gone: Iterable[str], head: str, url: str, lock: int) -> dict[str, str] | Failure:
        """Drop what upstream dropped, follow its HEAD, and put it all on disk."""
        await self._delete(gone, lock)
        done = await self._git("pack-refs", "--all", lock=lock)
        if done.code:
            return failure_of(done, url)
        now = await self.versions()
        if head := choose_head(now, head):
            refs.set_head(self.folder, head)
        if len(list((self.folder / "objects/pack").glob("*.pack"))) > _MANY_PACKS:
            await self._git("repack", "-d", "-q", "--geometric=2", lock=lock)
        refs.flush_folders(self.folder, self.folder / "objects/pack")
        return await self.versions()

    async def _broken_off(self, done: Result, url: str, largest: int) -> Failure:
        """A child that met its file limit dies without a word: the size of what it left tells."""
        packs = (self.folder / "objects/pack").glob("tmp_pack_*")
        too_big = any(pack.stat().st_size >= largest for pack in packs)
        await asyncio.to_thread(refs.sweep, self.folder)
        return Failure("too_big", f"{url} is larger than `max_repository`") if too_big else failure_of(done, url)

    async def _delete(self, names: Iterable[str], lock: int) -> None:
        lines = b"".join(b"delete %s\0\0" % to_bytes(name) for name in names)
        if lines:
            await self._git("update-ref", "--stdin", "-z", lock=lock, input=lines)

    async def _git(self, *args: str, lock: int, input: bytes = b"") -> Result:
        args = ("-C", str(self.folder), *args)
        return await run(args, environment(_PACK_CONFIG), seconds=_QUICK, input=input, keep=(lock,))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[int]:
        lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for _ in range(int(_PATIENCE / 0.05)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.05)
            else:
                raise Busy(f"another git process is at work in {self.folder.name}", hint="it will be tried again")
            yield lock
        finally:
            os.close(lock)


def fetch_environment(protocols: str, config: Iterable[tuple[str, str]], extra: Mapping[str, str]) -> dict[str, str]:
    return environment((*_FETCH_CONFIG, *config), protocols=protocols, extra=extra)


def emptied(before: Mapping[str, str], announced: Mapping[str, str], url: str) -> Failure | None:
    """An upstream that lost (nearly) everything is more often broken than meant."""
    held = [name for name in before if name != "HEAD"]
    gone = sum(name not in announced for name in held)
    if not held or (gone < len(held) and (gone * 2 <= len(held) or gone < _FEW_GONE)):
        return None
    return Failure(
        "emptied",
        f"{url} lost {gone} of {len(held)} branches and tags; the mirror keeps them. "
        "If that is meant, remove the source and add it again",
    )


def _progress(stage: Literal["clone", "fetch"], report: Report) -> Callable[[str], None]:
    def hear(line: str) -> None:
        if found := _PROGRESS.match(line):
            percent = int(found[2])
            done = percent * 8 // 10 if found[1].startswith("Rec") else 80 + percent // 5
            report(Progress(stage, done, 100))

    return hear
