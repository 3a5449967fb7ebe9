"""What a worker does with a source, without its schedule."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.base.ids import new_id
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure, Held, Progress
from skep.sources.source_type import Look, Moved


class Follower:
    """Look, fetch, remember."""

    def __init__(self, kind: GitKind, url: str) -> None:
        self.kind = kind
        self.held = Held(new_id("src", 1.0), 1, "git", url, 1)
        self.progress: list[Progress] = []

    @property
    def folder(self) -> Path:
        return self.kind.folder(self.held)

    async def look(self) -> Look:
        return await self.kind.look(self.held)

    async def follow(self) -> dict[str, str] | Failure:
        look = await self.look()
        if isinstance(look, Failure):
            return look
        if isinstance(look, Moved):
            found = await self.kind.fetch(self.held, look, self.progress.append)
            if isinstance(found, Failure):
                return found
            self.held = msgspec.structs.replace(self.held, seen=look.seen)
        return dict(await self.kind.versions(self.held))

    async def succeed(self) -> dict[str, str]:
        found = await self.follow()
        assert not isinstance(found, Failure), found
        return found

    async def fail(self) -> Failure:
        found = await self.follow()
        assert isinstance(found, Failure), found
        return found

    def fsck(self) -> None:
        command = ["git", "-C", str(self.folder), "-c", "safe.directory=*", "fsck", "--full"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


Follow = Callable[[str], Follower]
