"""Packages on a worker: brought through the link when a task needs one, checked, and kept while there is room."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from skep.config import Settings
from skep.engines.blobs.folder import FolderBlobs
from skep.errors import NotFound
from skep.link.carry import dial
from skep.link.dial import Dial
from skep.link.messages import AnswerBody, AskBody
from skep.link.parcel import take_blob
from skep.model.package import Package, PackageFrom, PackageWanted
from skep.model.task import Run
from skep.packages.archive import Bounds, unpack


class Packages:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        member: str,
        ask: Callable[[AskBody], Awaitable[AnswerBody]],
        here: Callable[[], Dial],
    ) -> None:
        """`here`: the coordinator that gives."""
        self._blobs = FolderBlobs(folder)
        self._room = settings.package_cache
        self._bounds = Bounds(settings.package_unpacked)
        self._member = member
        self._ask = ask
        self._here = here
        #: sizes of those that are here, the one used last at the end
        self._kept: dict[str, int] = {}
        self._busy: Counter[str] = Counter()
        self._bringing = asyncio.Lock()

    async def start(self) -> None:
        self._kept = {info.id: info.size async for info in self._blobs.list()}

    async def find(self, run: Run) -> Package:
        """What the task's package is now: the same version of a snapshot may be another archive than yesterday."""
        return (await self._wanted(run, open=False)).package

    async def unpack(self, run: Run, package: Package, into: Path) -> None:
        """A copy for each run: what one does to it is no other's trouble."""
        id = package.blob
        self._busy[id] += 1
        try:
            async with self._bringing:
                if not await asyncio.to_thread(self._is_whole, id):
                    await self._bring(run, package)
            self._kept[id] = self._kept.pop(id, package.size)
            await asyncio.to_thread(unpack, self._blobs.path(id), self._bounds, into)
        finally:
            self._busy[id] -= 1
            await self._make_room()

    async def _bring(self, run: Run, package: Package) -> None:
        ticket, here = (await self._wanted(run, open=True)).ticket, self._here()
        async with dial(here.targets[0], ticket, self._member, here.ca) as stream:
            await take_blob(stream, self._blobs, package.blob, package.size)

    async def _wanted(self, run: Run, *, open: bool) -> PackageFrom:
        found = await self._ask(PackageWanted(run.spec.package, run.task, run.attempt, open))
        if not isinstance(found, PackageFrom):
            raise NotFound(f"the coordinator knows no package {run.spec.package}")
        return found

    def _is_whole(self, id: str) -> bool:
        """A disk may forget; what is not as it came is brought again."""
        try:
            with self._blobs.path(id).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == id
        except FileNotFoundError:
            return False

    async def _make_room(self) -> None:
        for id in [id for id in self._kept if not self._busy[id]]:
            if sum(self._kept.values()) <= self._room:
                return
            del self._kept[id]
            await self._blobs.delete(id)
