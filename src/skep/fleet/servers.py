"""The serving processes, coordinators and aggregators: where each is reached, and how much it has gathered."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.errors import SkepError, Unavailable
from skep.model.answers import ServerStatus
from skep.model.ids import new_id

STEPS = [
    """
    CREATE TABLE server (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, roles TEXT NOT NULL, url TEXT NOT NULL, link TEXT NOT NULL,
        labels TEXT NOT NULL, sources BIGINT NOT NULL, due BIGINT NOT NULL, last_alive DOUBLE PRECISION NOT NULL
    )
    """
]
#: one that is silent for so long is away; after the longer time it is forgotten
AWAY_SECONDS, FORGET_SECONDS = 30.0, 2_592_000.0


class Place(msgspec.Struct, frozen=True):
    """This process, as others see it."""

    id: str
    name: str
    roles: Sequence[str]
    #: for people
    url: str
    #: HOST:PORT for workers; empty: they cannot dial it
    link: str
    #: of the sources that it gathers; none: all
    labels: Sequence[str] = ()


class Servers:
    def __init__(self, db: Database, clock: Clock, me: Place) -> None:
        self._db = db
        self._clock = clock
        self.me = me

    async def start(self) -> None:
        await self._db.migrate("servers", STEPS)
        await self.beat(0, 0)

    async def beat(self, sources: int, due: int) -> None:
        me = self.me
        words = {"roles": " ".join(me.roles), "labels": " ".join(me.labels), "name": me.name, "url": me.url}

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO server (id, name, roles, url, link, labels, sources, due, last_alive) VALUES "
                "(:id, :name, :roles, :url, :link, :labels, :sources, :due, :now) ON CONFLICT (id) DO UPDATE SET "
                "name = excluded.name, roles = excluded.roles, url = excluded.url, link = excluded.link, labels = "
                "excluded.labels, sources = excluded.sources, due = excluded.due, last_alive = excluded.last_alive",
                id=me.id,
                link=me.link,
                sources=sources,
                due=due,
                now=self._clock.now(),
                **words,
            )

        await self._db.write(work, runtime=True)

    async def leave(self) -> None:
        with suppress(SkepError):
            away = self._clock.now() - AWAY_SECONDS
            await self._db.write(
                lambda tx: tx.rows("UPDATE server SET last_alive = :away WHERE id = :id", id=self.me.id, away=away)
            )

    async def relay(self) -> tuple[str, str]:
        """Id and address of a coordinator where workers and this process can both come."""
        for one in await self.list():
            if "coordinator" in one.roles and one.link and one.state == "alive":
                return one.id, one.link
        raise Unavailable("no coordinator can relay", hint="set link_listen of one, or link_listen of this aggregator")

    async def list(self) -> list[ServerStatus]:
        rows = await self._db.read("SELECT * FROM server ORDER BY id")
        silent = self._clock.now() - AWAY_SECONDS
        return [
            ServerStatus(
                row["id"],
                row["name"],
                row["roles"].split(),
                "alive" if row["last_alive"] > silent else "away",
                row["url"],
                row["link"],
                row["labels"].split(),
                row["sources"],
                row["due"],
                row["last_alive"],
            )
            for row in rows
        ]


def keep_id(folder: Path, prefix: str, clock: Clock) -> str:
    """Made once, kept in the folder."""
    file = folder / "id"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(new_id(prefix, clock.now()))
    return file.read_text().strip()
