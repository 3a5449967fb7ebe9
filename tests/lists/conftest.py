"""Lists over real databases and real git repositories, without link and worker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.access.tokens import Access
from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.fleet.assignments import confirm, pending
from skep.fleet.members import Fleet
from skep.net.guard import Guard
from skep.sources.git.http import Http
from skep.sources.git.ls_refs import ca_bundle
from skep.sources.git.source_type import GitAddresses
from skep.sources.lists.apply import Apply
from skep.sources.lists.asking import Asking
from skep.sources.lists.follow import Follower
from skep.sources.lists.service import Lists
from skep.sources.model import Key, SourceList
from skep.sources.service import Sources
from skep.storage.database import Database, Row
from skep.storage.topic_log import open_rows
from skep.topics.service import Topics
from tests.rooms.house import WORKER_TOKEN, MovedClock
from tests.support.forge.repository import Files, Repo

TOKEN = "s3cret-token"


class ListHouse(msgspec.Struct):
    db: Database
    clock: MovedClock
    fleet: Fleet
    topics: Topics
    sources: Sources
    lists: Lists
    follower: Follower
    #: host -> what it is shown
    keys: dict[str, list[Key]]
    folder: Path

    async def repository(self, files: Files) -> tuple[Repo, SourceList]:
        """A list repository whose mirror is the repository itself, and the list."""
        repo = Repo.init(self.folder / "list.git")
        added = await self.lists.add(SYSTEM, "https://example.org/lists")
        await self.push(repo, added, files)
        return repo, added

    async def push(self, repo: Repo, list: SourceList, files: Files) -> None:
        """Commit, and tell the catalogue as a worker would."""
        commit = repo.commit(files)

        async def work(tx: Any) -> None:
            await tx.rows("UPDATE source SET default_branch = 'main' WHERE id = :id", id=list.source)
            await tx.rows(
                "INSERT INTO entry (source, name, seq, version) VALUES (:id, 'refs/heads/main', 1, :commit) "
                "ON CONFLICT (source, name) DO UPDATE SET version = excluded.version",
                id=list.source,
                commit=commit,
            )

        await self.db.write(work)

    async def named(self) -> dict[str, Row]:
        """Living sources by name, without the list's own."""
        rows = await self.db.read("SELECT * FROM source WHERE state <> 'removed' AND name <> 'example.org/lists'")
        return {row["name"]: row for row in rows}

    async def orders(self) -> list[tuple[str, str, str]]:
        rows = await self.db.read("SELECT member, kind, source FROM ordered ORDER BY n")
        return [(row["member"], row["kind"], row["source"]) for row in rows]

    async def done(self, member: str, source: str) -> None:
        """The worker has obeyed."""
        numbers = [one.n for one in await pending(self.db, member, 100) if one.source == source]
        await confirm(self.db, member, numbers, 1.0)

    async def work_for(self, member: str) -> None:
        await self.fleet.join(member, WORKER_TOKEN, 1, "worker", Offer(mirror=True))


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[ListHouse]:
    clock = MovedClock()
    settings = Settings(allow_networks=("127.0.0.0/8",))
    access = Access(database, clock, tmp_path, open_read=True)
    fleet = Fleet(database, clock, token=WORKER_TOKEN, beat_every=5.0)
    topics = Topics(database, await open_rows("db:", db=database), clock, 1_000_000)
    sources = Sources(database, clock, fleet, {"git": GitAddresses(settings)})
    lists = Lists(database, clock, sources)
    for room in (access, fleet, topics, sources, lists):
        await room.start()
    http = Http(ca=ca_bundle(), timeout=60.0, largest=1 << 20, connections=4, validators=True)
    house_keys: dict[str, list[Key]] = {}

    async def keys(host: str) -> list[Key]:
        return house_keys.get(host, [Key("api", host, "", "user", TOKEN, public=False)])

    follower = Follower(
        database,
        clock,
        topics,
        sources,
        Apply(database, clock, fleet, sources.catalogue),
        lambda _: tmp_path / "list.git",
        Asking(http, Guard(settings, clock, local=False), clock, keys),
        3_600.0,
        60.0,
    )
    yield ListHouse(database, clock, fleet, topics, sources, lists, follower, house_keys, tmp_path)
    await http.close()
