"""Brings together what workers elsewhere have: mirrors to serve and browse, and this process's own index.

On one machine there is nothing to gather: mirrors are read in place, and the index is the one that workers publish to.
Of a source that another machine holds a copy is kept in DATA/gathered, brought up to date whenever the source has
changed. Where several processes serve, each has an index of its own: whatever was published at another is asked of the
source's holder, from where the own index stands. A new process begins with everything. Nobody else knows what is in
such an index: once in a while the holder is asked whether it is what the mirror holds.
"""

import asyncio
import logging
import shutil
from functools import partial
from pathlib import Path

from skep.clock import Clock
from skep.config import Settings
from skep.engines.db.base import Database, Row, Tx
from skep.errors import SkepError
from skep.fleet.servers import FORGET_SECONDS, Servers
from skep.link.messages import GitOf
from skep.link.tunnels import Tunnels
from skep.loops import Loop
from skep.model.source import Failure
from skep.roles.receiving import Receiving
from skep.roles.wanting import Wanting, bell_of
from skep.sources.catalogue import MOVED
from skep.sources.git import browse
from skep.sources.git.copying import Bounds, fetch_through
from skep.sources.git.mirror import folder_of
from skep.sources.git.through import give
from skep.topics.service import Topics

log = logging.getLogger(__name__)

#: part -> brought at the same time
_AT_ONCE = {"mirror": 4, "index": 4, "verify": 1}
#: seconds; a holder that is merely behind, or comes back, has it in a moment
_AGAIN, _LONGEST = 1.0, 600.0
_BELL_SECONDS = 10.0
_BEAT_SECONDS = 10.0
_NOTE_FIRST = (
    "INSERT INTO gather (server, source, part, due, failures) VALUES (:me, :source, 'verify', :due, 0) "
    "ON CONFLICT DO NOTHING"
)
_COPIES = (
    "SELECT server FROM gather WHERE source = :source AND part = 'mirror' AND had = 1 AND server <> :me "
    "ORDER BY CASE WHEN due IS NULL THEN 0 ELSE 1 END, server"
)
_HAD = "UPDATE gather SET had = 1 WHERE server = :me AND source = :source AND part = :part AND had = 0"
_DUE = (
    "SELECT gather.*, source.url, source.indexed_tips, holding.member FROM gather "
    "LEFT JOIN source ON source.id = gather.source AND source.state <> 'removed' "
    "LEFT JOIN holding ON holding.source = gather.source "
    "WHERE gather.server = :me AND gather.part = :part AND gather.due <= :now ORDER BY gather.due LIMIT :most"
)


class Gathering:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        topics: Topics,
        settings: Settings,
        servers: Servers,
        tunnels: Tunnels,
        receiving: Receiving,
    ) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._data = Path(settings.data)
        self._bounds = Bounds(settings.fetch_timeout, settings.max_repository)
        self.servers = servers
        self._me = servers.me.id
        self._verify_every = settings.reindex_every
        #: is the index of this process nobody else's?
        self.own_index = db.shared and settings.index.startswith("file:")
        self.tunnels = tunnels
        self.receiving = receiving
        parts = ["mirror", "index"] if self.own_index else ["mirror"]
        published = receiving.indexed if "coordinator" in settings.roles else None
        self._wanting = Wanting(db, clock, topics, self._data, self._me, servers.me.labels, parts, published)

    async def start(self) -> None:
        await self._wanting.start()
        # whatever was on its way when an earlier process ended is asked for again
        await asyncio.to_thread(shutil.rmtree, self._data / "incoming", ignore_errors=True)
        if self.own_index:  # of which shards may have been damaged, or somebody removed the folder
            once = "SELECT source FROM gather WHERE server = :me AND part = 'verify'"
            had = {row["source"] for row in await self._db.read(once, me=self._me)}
            await self._db.write(partial(self._wanting.note, part="verify", sources=had - self.receiving.indexed()))

    def mirror(self, source: str) -> Path:
        """In place where it is on this machine, else the copy."""
        here = folder_of(self._data, source)
        return here if here.exists() else folder_of(self._data / "gathered", source)

    async def has(self, source: str, commit: str) -> bool:
        """Is it here? In place it always is; a copy may still be on its way."""
        folder = self.mirror(source)
        if folder == folder_of(self._data, source):
            return True
        return await asyncio.to_thread(folder.exists) and await browse.resolve(folder, commit) is not None

    async def others(self, source: str) -> list[str]:
        """Ids of those who have a copy of it, or had; those whose copy is the newest first."""
        return [row["server"] for row in await self._db.read(_COPIES, source=source, me=self._me)]

    @property
    def loops(self) -> list[Loop]:
        parts = ("mirror", "index", "verify") if self.own_index else ("mirror",)
        bring = [partial(self._bring, part) for part in parts]
        return [*self._wanting.loops, *bring, self._report, self._give]

    async def compare(self, tx: Tx, source: str) -> None:
        """Have every index of a source compared now, whoever it belongs to."""
        rows = await tx.rows(
            "UPDATE gather SET due = :now, failures = 0 WHERE source = :source AND part = 'verify' RETURNING server",
            now=self._clock.now(),
            source=source,
        )
        for row in rows:
            tx.ring(bell_of(row["server"]))

    # bringing it

    async def _bring(self, part: str) -> None:
        """For ever: what is due, a few at a time."""
        async with self._db.listen(self._wanting.bell) as bell:
            while True:
                rows = await self._db.read(_DUE, me=self._me, part=part, now=self._clock.now(), most=_AT_ONCE[part])
                results = await asyncio.gather(*map(self._bring_one, rows), return_exceptions=True)
                for error in filter(None, results):
                    raise error  # once none is under way: whatever is due is begun again
                if not rows:
                    await bell.wait(await self._until_next(part))

    async def _until_next(self, part: str) -> float:
        """Seconds."""
        next_due = "SELECT min(due) AS due FROM gather WHERE server = :me AND part = :part AND due IS NOT NULL"
        due = (await self._db.read(next_due, me=self._me, part=part))[0]["due"]
        return _BELL_SECONDS if due is None else min(_BELL_SECONDS, max(0.0, due - self._clock.now()))

    async def _bring_one(self, row: Row) -> None:
        source, reason = row["source"], ""
        if row["url"] is None:
            await self._drop(source)
            return
        if await self._wanting.unwanted([source], row["part"]):
            await self._let_go(source, row["part"])
            return
        try:
            if row["part"] == "index" or (row["part"] == "verify" and row["indexed_tips"]):
                # what is behind what was published is brought before it is compared
                await self.receiving.index(source, row["member"] or "", row["indexed_tips"])
            if row["part"] == "verify":
                await self.receiving.verify(source, row["member"] or "")
            elif row["part"] == "mirror" and not folder_of(self._data, source).exists():
                reason = await self._fetch(source, row["url"], row["member"] or "")
        except SkepError as error:
            reason = error.message
        except Exception:
            # one source that nobody foresaw must not take the others, and this process, with it
            log.exception("the %s of %s could not be brought", row["part"], source)
            reason = "the log says more"
        if reason:
            log.info("the %s of %s cannot be brought yet: %s", row["part"], source, reason)
        await self._db.write(partial(self._brought, row, bool(reason)))

    async def _fetch(self, source: str, url: str, holder: str) -> str:
        folder = folder_of(self._data / "gathered", source)
        opened, told = partial(self.tunnels.opened, holder, GitOf(source)), partial(self.receiving.told, source)
        found = await fetch_through(folder, url, opened, told, self._bounds, lambda progress: None, self._clock.now())
        return found.message if isinstance(found, Failure) else ""

    async def _brought(self, row: Row, failed: bool, tx: Tx) -> None:
        """What changed again meanwhile is due again."""
        pause: float | None = self._verify_every if row["part"] == "verify" else None
        if failed:
            pause = min(_LONGEST, _AGAIN * 2 ** min(row["failures"], 20))
        elif row["part"] == "index":
            due = self._clock.now() + self._verify_every
            await tx.rows(_NOTE_FIRST, me=self._me, source=row["source"], due=due)
        await tx.rows(
            "UPDATE gather SET due = :next, failures = :failures WHERE server = :me AND source = :source "
            "AND part = :part AND due = :due",
            next=None if pause is None else self._clock.now() + pause,
            failures=row["failures"] + 1 if failed else 0,
            me=self._me,
            source=row["source"],
            part=row["part"],
            due=row["due"],
        )
        if not failed:
            await tx.rows(_HAD, me=self._me, source=row["source"], part=row["part"])
            tx.ring(MOVED)  # a list may have waited for it

    async def _drop(self, source: str) -> None:
        await asyncio.to_thread(shutil.rmtree, folder_of(self._data / "gathered", source), ignore_errors=True)
        await self._db.write(
            lambda tx: tx.rows("DELETE FROM gather WHERE server = :me AND source = :source", me=self._me, source=source)
        )

    async def _let_go(self, source: str, part: str) -> None:
        """Its labels, or those that this process is for, are others than they were."""
        if part == "mirror":
            await asyncio.to_thread(shutil.rmtree, folder_of(self._data / "gathered", source), ignore_errors=True)
        else:
            await self.receiving.drop(source)
        gone = "DELETE FROM gather WHERE server = :me AND source = :source AND part = :part"
        await self._db.write(lambda tx: tx.rows(gone, me=self._me, source=source, part=part))
        # they may have become what they were, which nobody notes of what seemed to be here
        again = await self._wanting.among([source], part)
        whole = "mirror" if part == "mirror" else "index"
        await self._db.write(partial(self._wanting.note, part=whole, sources=again))

    # what others know of it

    async def _report(self) -> None:
        """For ever: say that this process is there, and how much it has; let go of what was removed."""
        while True:
            rows = await self._db.read(
                "SELECT count(DISTINCT source) AS n, count(CASE WHEN part <> 'verify' THEN due END) AS due FROM gather "
                "WHERE server = :me",
                me=self._me,
            )
            await self.servers.beat(int(rows[0]["n"]), int(rows[0]["due"]))
            gone = await self._db.read(
                "SELECT DISTINCT gather.source FROM gather JOIN source ON source.id = gather.source "
                "WHERE gather.server = :me AND source.state = 'removed'",
                me=self._me,
            )
            for row in gone:
                await self._drop(row["source"])
            await self._db.write(partial(_forget, self._clock.now() - FORGET_SECONDS), runtime=True)
            await asyncio.sleep(_BEAT_SECONDS)

    async def _give(self) -> None:
        """For ever: copies for workers that have nobody else to ask."""
        await self.tunnels.follow(lambda source: partial(give, self.mirror(source)))


async def _forget(before: float, tx: Tx) -> None:
    for row in await tx.rows("DELETE FROM server WHERE last_alive < :before RETURNING id", before=before):
        await tx.rows("DELETE FROM gather WHERE server = :id", id=row["id"])
        await tx.rows("DELETE FROM gather_place WHERE server = :id", id=row["id"])
        await tx.rows("DELETE FROM place WHERE reader = :reader", reader=f"skep.gather.{row['id']}")
