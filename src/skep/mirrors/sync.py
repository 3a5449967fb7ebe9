"""Brings together what workers elsewhere have: mirrors to serve and browse, and this process's own index.

On one machine there is nothing to gather: mirrors are read in place, and the index is the one that workers publish to.
Of a source that another machine holds a copy is kept in DATA/gathered, brought up to date whenever the source has
changed. Where several processes serve, each has an index of its own: whatever was published at another is asked of the
source's holder, from where the own index stands. A new process begins with everything. Nobody else knows what is in
such an index: once in a while the holder is asked whether it is what the mirror holds.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.loops import Loop
from skep.config.settings import Settings
from skep.fleet.tunnels import FORGET_SECONDS, Servers, Tunnels
from skep.mirrors.receive import Receiving
from skep.rpc.messages import GitOf
from skep.sources.catalogue import CATALOGUE, MOVED
from skep.sources.git import browse
from skep.sources.git.mirror import folder_of
from skep.sources.git.mirror_copy import Bounds, fetch_through
from skep.sources.git.process import give
from skep.sources.model import Failure
from skep.storage.database import Database, Row, Tx, Value
from skep.topics.api import Part
from skep.topics.service import CHANGES, INDEXED, Topics

# What this process is to gather, noted in the table `gather`: what has changed, and what its labels make its own.
#
# A process with `gather_labels` is for the sources with one of these. Whoever changes a source raises its revision, so
# that labels which are others now are found without looking at every source; all are looked at, from the first revision
# on, by a process that is new or has another setting than it had.

#: part -> where changes of it are told
_TOLD = {"mirror": CHANGES, "index": INDEXED}
_PAGE = 1_000
_BELL_SECONDS = 30.0
STEPS = [
    """
    CREATE TABLE gather (
        server TEXT NOT NULL, source TEXT NOT NULL, part TEXT NOT NULL, due DOUBLE PRECISION, failures BIGINT NOT NULL,
        PRIMARY KEY (server, source, part)
    );
    CREATE INDEX gather_due ON gather (server, due) WHERE due IS NOT NULL;
    CREATE INDEX gather_source ON gather (source)
    """,
    """
    DROP INDEX gather_due;
    CREATE INDEX gather_due ON gather (server, part, due) WHERE due IS NOT NULL;
    INSERT INTO gather (server, source, part, due, failures)
    SELECT server, source, 'verify', 0, 0 FROM gather WHERE part = 'index'
    """,
    """
    CREATE TABLE gather_place (
        server TEXT PRIMARY KEY, labels TEXT NOT NULL, revision BIGINT NOT NULL, number BIGINT NOT NULL
    )
    """,
    # whether it was ever brought: what is due may be an older copy, or none
    "ALTER TABLE gather ADD COLUMN had BIGINT NOT NULL DEFAULT 0; UPDATE gather SET had = 1 WHERE due IS NULL",
]
_NOTE = (
    "INSERT INTO gather (server, source, part, due, failures) VALUES (:me, :source, :part, :now, 0) "
    "ON CONFLICT (server, source, part) DO "
)
_AGAIN, _ONCE = "UPDATE SET due = excluded.due, failures = 0", "NOTHING"
_SET = (
    "INSERT INTO gather_place (server, labels, revision, number) VALUES (:me, :labels, -1, -1) "
    "ON CONFLICT (server) DO UPDATE SET labels = excluded.labels, revision = -1, number = -1 "
    "WHERE gather_place.labels <> excluded.labels"
)
_REVISED = (
    "SELECT id, number, revision FROM source WHERE (revision, number) > (:revision, :number) "
    "ORDER BY revision, number LIMIT :page"
)
_FETCHED = (
    "SELECT id FROM source WHERE id IN (:ids) AND kind = 'git' AND state <> 'removed' AND last_fetched IS NOT NULL"
)


def bell_of(server: str) -> str:
    """Rung when something is due there."""
    return f"gather:{server}"


class _Told(msgspec.Struct):
    source: str
    kind: str = "git"


class Wanting:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        topics: Topics,
        data: Path,
        me: str,
        labels: Sequence[str],
        parts: Sequence[str],
        published: Callable[[], set[str]] | None,
    ) -> None:
        """`parts`: mirrors, and the index where it is this process's own. `published`: what is in that, if workers
        publish there; it stays, and stays true."""
        self._db = db
        self._clock = clock
        self._topics = topics
        self._data = data
        self._me = me
        self._labels = frozenset(labels)
        self._parts = parts
        self._published = published
        self.bell = bell_of(me)

    async def start(self) -> None:
        await self._db.migrate("gather", STEPS)
        labels = json.dumps(sorted(self._labels))
        await self._db.write(lambda tx: tx.rows(_SET, me=self._me, labels=labels))

    @property
    def loops(self) -> list[Loop]:
        return [*(partial(self._follow, _TOLD[part], part) for part in self._parts), self._follow_labels]

    async def _follow(self, topic: str, part: str) -> None:
        """For ever: note what has changed."""
        reader = f"skep.gather.{self._me}"
        if not await self._db.read("SELECT reader FROM place WHERE reader = :r AND topic = :t", r=reader, t=topic):
            _, end = await self._topics.log.bounds(Part(topic))
            await self._db.write(partial(self._begin, reader, topic, end))
        async with self._topics.listen(topic) as bell:
            while True:
                messages = await self._topics.unread(reader, topic, _PAGE)
                if not messages:
                    await bell.wait(_BELL_SECONDS)
                    continue
                told = [msgspec.json.decode(message.body, type=_Told) for message in messages]
                moved = {one.source for one in told if one.kind == "git"}
                wanted, place = await self._to_bring(moved, part), messages[-1].offset + 1

                async def work(tx: Tx, wanted: list[str] = wanted, place: int = place) -> None:
                    await self.note(tx, part, wanted)
                    await self._topics.commit(tx, reader, topic, place)

                await self._db.write(work)

    async def _begin(self, reader: str, topic: str, end: int, tx: Tx) -> None:
        """What was told before is found by looking at all sources."""
        await self._topics.commit(tx, reader, topic, end)
        await tx.rows("UPDATE gather_place SET revision = -1, number = -1 WHERE server = :me", me=self._me)
        tx.ring(CATALOGUE)

    async def _follow_labels(self) -> None:
        """For ever: note what has become wanted, or no longer is."""
        async with self._db.listen(CATALOGUE) as bell:
            while True:
                place = (await self._db.read("SELECT * FROM gather_place WHERE server = :me", me=self._me))[0]
                at = {"revision": place["revision"], "number": place["number"]}
                if rows := await self._db.read(_REVISED, page=_PAGE, **at):
                    await self._sort(place, rows)
                else:
                    await bell.wait(_BELL_SECONDS)

    async def _sort(self, place: Row, rows: Sequence[Row]) -> None:
        """What is there already is left alone, and what never was fetched; what is not wanted is let go when due."""
        ids = [row["id"] for row in rows]
        fetched = [row["id"] for row in await self._db.read(_FETCHED, ids=ids)]
        wanted = {part: await self._to_bring(fetched, part) for part in self._parts}
        unwanted = {part: await self.unwanted(fetched, part) for part in self._parts}

        async def work(tx: Tx) -> None:
            for part, sources in wanted.items():
                await self.note(tx, part, sources, _ONCE)
            for part, sources in unwanted.items():
                await self._release(tx, part, sources)
            await tx.rows(
                "UPDATE gather_place SET revision = :revision, number = :number "
                "WHERE server = :me AND revision = :before AND number = :last",
                me=self._me,
                revision=rows[-1]["revision"],
                number=rows[-1]["number"],
                before=place["revision"],
                last=place["number"],
            )

        await self._db.write(work, runtime=True)  # what is lost with the place is found again

    async def _release(self, tx: Tx, part: str, sources: list[str]) -> None:
        parts = ["mirror"] if part == "mirror" else ["index", "verify"]
        rows = await tx.rows(
            "UPDATE gather SET due = :now, failures = 0 WHERE server = :me AND part IN (:parts) "
            "AND source IN (:sources) RETURNING source",
            now=self._clock.now(),
            me=self._me,
            parts=parts,
            sources=sources,
        )
        if rows:
            tx.ring(self.bell)

    async def _to_bring(self, sources: Iterable[str], part: str) -> list[str]:
        """A mirror that is on this machine is read in place."""
        wanted = sorted(await self.among(sources, part))
        return [one for one in wanted if part != "mirror" or not folder_of(self._data, one).exists()]

    async def among(self, sources: Iterable[str], part: str) -> set[str]:
        """Those of them that are to be here, by their labels; lists are read wherever this process is a coordinator,
        whatever their labels are."""
        ids = sorted(sources)
        if not self._labels:
            return set(ids)
        rows = await self._db.read(
            "SELECT id, labels, EXISTS (SELECT 1 FROM list WHERE list.source = source.id) AS listed "
            "FROM source WHERE id IN (:ids)",
            ids=ids,
        )
        found = {row["id"] for row in rows if row["listed"] or self._labels & set(json.loads(row["labels"]))}
        return found | (self._published() & set(ids)) if part != "mirror" and self._published else found

    async def unwanted(self, sources: Sequence[str], part: str) -> list[str]:
        """Those of them that are not to stay."""
        if part != "mirror" and self._published:
            return []
        wanted = await self.among(sources, part)
        return [one for one in sources if one not in wanted]

    async def note(self, tx: Tx, part: str, sources: Iterable[str], known: str = _AGAIN) -> None:
        """As due; `known`: what of those that were noted before."""
        what: dict[str, Value] = {"me": self._me, "part": part, "now": self._clock.now()}
        rows = [what | {"source": source} for source in sources]
        await tx.many(_NOTE + known, rows)
        if rows:
            tx.ring(self.bell)


log = logging.getLogger(__name__)

#: part -> brought at the same time
_AT_ONCE = {"mirror": 4, "index": 4, "verify": 1}
#: seconds; a holder that is merely behind, or comes back, has it in a moment
_GATHERING_AGAIN, _LONGEST = 1.0, 600.0
_GATHERING_BELL_SECONDS = 10.0
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
        return (
            _GATHERING_BELL_SECONDS if due is None else min(_GATHERING_BELL_SECONDS, max(0.0, due - self._clock.now()))
        )

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
            pause = min(_LONGEST, _GATHERING_AGAIN * 2 ** min(row["failures"], 20))
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
