"""Groups: members share the partitions of a topic. Each partition has one reader at a time, by a lease.

A member that stops coming back is out after a while, and its partitions go to the others with the generation raised,
so that its late commits are refused. A member that is alive is never robbed: it is asked to give a partition back,
finishes what it reads, commits, and only then does the other begin. So nothing is read twice unless somebody crashed.
"""

from collections.abc import Sequence

from skep.engines.db.base import Row, Tx
from skep.errors import BadInput, Conflict, NotFound
from skep.model.caller import Caller
from skep.model.ids import new_id
from skep.model.topic import Commit, Lag, Lease, Membership, Part, Place, Topic
from skep.topics.service import OWN, Topics
from skep.topics.share import fair
from skep.topics.tables import valid_name

#: a member that has not been heard of for so long is out
MEMBER_SECONDS = 30.0


class Groups:
    def __init__(self, topics: Topics, member_seconds: float = MEMBER_SECONDS) -> None:
        self._topics = topics
        self._db = topics.db
        self._seconds = member_seconds

    async def join(
        self, caller: Caller, topic: str, group: str, *, member: str = "", start: str = "beginning"
    ) -> Membership:
        """Become or stay a member, and learn what to read. Called again and again, at least every few seconds."""
        found = await self._allowed(caller, topic, group)
        if member:
            valid_name(member, "member")
        member = member or new_id("mem", self._topics.clock.now())
        starts = await self._topics.places(caller, topic, start)

        async def work(tx: Tx) -> Membership:
            places = await self._places(tx, found, group, starts)
            alive = await self._alive(tx, topic, group, member)
            owners = {int(row["partition"]): row["member"] if row["member"] in alive else None for row in places}
            target = fair(owners, alive)
            leases, give_back = [], []
            for row in places:
                partition, owner = int(row["partition"]), owners[int(row["partition"])]
                if owner is None and target.get(partition) == member:
                    leases.append(await self._take(tx, topic, group, member, row))
                elif owner == member:
                    leases.append(_lease(row))
                    if target.get(partition) != member:
                        give_back.append(partition)
            return Membership(member, leases, give_back, self._seconds)

        return await self._db.write(work)

    async def commit(self, caller: Caller, topic: str, group: str, member: str, commits: Sequence[Commit]) -> None:
        """All or none. Conflict when a partition has meanwhile gone to another: its generation has risen."""
        await self._allowed(caller, topic, group)
        for one in commits:
            _, end = await self._topics.log.bounds(await self._topics.part(topic, one.partition))
            if not 0 <= one.offset <= end:
                raise BadInput(f"partition {one.partition} of {topic!r} ends at {end}: no place {one.offset}")

        async def work(tx: Tx) -> None:
            for one in commits:
                rows = await tx.rows(
                    "UPDATE place SET next_offset = CASE WHEN next_offset > :offset THEN next_offset ELSE :offset END, "
                    "member = CASE WHEN :back = 1 THEN NULL ELSE member END "
                    "WHERE reader = :group AND topic = :topic AND partition = :partition AND member = :member "
                    "AND generation = :generation RETURNING partition",
                    offset=one.offset,
                    back=int(one.give_back),
                    group=group,
                    topic=topic,
                    partition=one.partition,
                    member=member,
                    generation=one.generation,
                )
                if not rows:
                    raise Conflict(
                        f"partition {one.partition} of {topic!r} is no longer read by {member!r}",
                        hint="join again; what was not committed is read by another member",
                    )
            await self._touch(tx, topic, group, member)

        await self._db.write(work)

    async def leave(self, caller: Caller, topic: str, group: str, member: str) -> None:
        await self._allowed(caller, topic, group)

        async def work(tx: Tx) -> None:
            await tx.rows(
                "DELETE FROM reader_member WHERE reader = :group AND topic = :topic AND member = :member",
                group=group,
                topic=topic,
                member=member,
            )
            await tx.rows(
                "UPDATE place SET member = NULL WHERE reader = :group AND topic = :topic AND member = :member",
                group=group,
                topic=topic,
                member=member,
            )

        await self._db.write(work)

    async def seek(self, caller: Caller, topic: str, group: str, to: str, partition: int | None = None) -> list[Lag]:
        """`beginning`, `end`, `time:SECONDS` or `offset:N`. Whoever reads now loses its lease and joins again."""
        caller.need("write")
        found = await self._allowed(caller, topic, group)
        chosen = range(found.partitions) if partition is None else [partition]
        offsets = {n: await self._topics.resolve(await self._topics.part(topic, n), to) for n in chosen}

        async def work(tx: Tx) -> None:
            for n, offset in offsets.items():
                await tx.rows(
                    "INSERT INTO place (reader, topic, partition, next_offset, generation) "
                    "VALUES (:group, :topic, :partition, :offset, 1) ON CONFLICT (reader, topic, partition) "
                    "DO UPDATE SET next_offset = excluded.next_offset, member = NULL, "
                    "generation = place.generation + 1",
                    group=group,
                    topic=topic,
                    partition=n,
                    offset=offset,
                )

        await self._db.write(work)
        return await self.lag(caller, topic, group)

    async def lag(self, caller: Caller, topic: str, group: str) -> list[Lag]:
        caller.need("read")
        valid_name(group, "group")
        found = await self._topics.find(topic)
        rows = await self._db.read(
            "SELECT * FROM place WHERE reader = :group AND topic = :topic ORDER BY partition", group=group, topic=topic
        )
        if not rows:
            raise NotFound(f"nobody reads {topic!r} as {group!r}", hint="a group exists once a member has joined")
        places = {int(row["partition"]): row for row in rows}
        lags = []
        for partition in range(found.partitions):
            first, end = await self._topics.log.bounds(Part(topic, partition))
            row = places.get(partition)
            offset = max(first, int(row["next_offset"])) if row else first
            lags.append(Lag(partition, offset, end, max(0, end - offset), row["member"] if row else None))
        return lags

    async def _allowed(self, caller: Caller, topic: str, group: str) -> Topic:
        caller.need("read")
        if topic in OWN:
            caller.need("private")
        if valid_name(group, "group").startswith("skep."):
            raise BadInput(f"{group!r} is one of Skep's own readers", hint="choose a name without 'skep.'")
        return await self._topics.find(topic)

    async def _places(self, tx: Tx, topic: Topic, group: str, starts: Sequence[Place]) -> list[Row]:
        """The places of a group, made at its first visit and locked, so that two who join at once agree."""
        for start in starts:
            await tx.rows(
                "INSERT INTO place (reader, topic, partition, next_offset, generation) "
                "VALUES (:group, :topic, :partition, :offset, 0) ON CONFLICT (reader, topic, partition) DO NOTHING",
                group=group,
                topic=topic.name,
                partition=start.partition,
                offset=start.offset,
            )
        return await tx.rows(
            "SELECT * FROM place WHERE reader = :group AND topic = :topic ORDER BY partition FOR UPDATE",
            group=group,
            topic=topic.name,
        )

    async def _alive(self, tx: Tx, topic: str, group: str, member: str) -> list[str]:
        await tx.rows(
            "DELETE FROM reader_member WHERE reader = :group AND topic = :topic AND until < :now",
            group=group,
            topic=topic,
            now=self._topics.clock.now(),
        )
        await self._touch(tx, topic, group, member)
        rows = await tx.rows(
            "SELECT member FROM reader_member WHERE reader = :group AND topic = :topic ORDER BY member",
            group=group,
            topic=topic,
        )
        return [row["member"] for row in rows]

    async def _touch(self, tx: Tx, topic: str, group: str, member: str) -> None:
        await tx.rows(
            "INSERT INTO reader_member (reader, topic, member, until) VALUES (:group, :topic, :member, :until) "
            "ON CONFLICT (reader, topic, member) DO UPDATE SET until = excluded.until",
            group=group,
            topic=topic,
            member=member,
            until=self._topics.clock.now() + self._seconds,
        )

    async def _take(self, tx: Tx, topic: str, group: str, member: str, row: Row) -> Lease:
        rows = await tx.rows(
            "UPDATE place SET member = :member, generation = generation + 1 "
            "WHERE reader = :group AND topic = :topic AND partition = :partition RETURNING *",
            member=member,
            group=group,
            topic=topic,
            partition=row["partition"],
        )
        return _lease(rows[0])

    async def list(self, caller: Caller, topic: str) -> list[str]:
        """Names of the groups that read a topic."""
        caller.need("read")
        rows = await self._db.read(
            "SELECT DISTINCT reader FROM place WHERE topic = :topic AND reader NOT LIKE '%/%' ORDER BY reader",
            topic=topic,
        )
        return [row["reader"] for row in rows]


def _lease(row: Row) -> Lease:
    return Lease(int(row["partition"]), int(row["generation"]), int(row["next_offset"]))
