"""What this process is to gather, noted in the table `gather`: what has changed, and what its labels make its own.

A process with `gather_labels` is for the sources with one of these. Whoever changes a source raises its revision, so
that labels which are others now are found without looking at every source; all are looked at, from the first revision
on, by a process that is new or has another setting than it had.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx, Value
from skep.loops import Loop
from skep.model.topic import Part
from skep.sources.catalogue import CATALOGUE
from skep.sources.git.mirror import folder_of
from skep.topics.service import CHANGES, INDEXED, Topics

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
