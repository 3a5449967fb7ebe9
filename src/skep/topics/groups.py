"""Groups: members share the partitions of a topic. Each partition has one reader at a time, by a lease.

A member that stops coming back is out after a while, and its partitions go to the others with the generation raised,
so that its late commits are refused. A member that is alive is never robbed: it is asked to give a partition back,
finishes what it reads, commits, and only then does the other begin. So nothing is read twice unless somebody crashed.
That nobody was heard while nobody listened says nothing of them: such time is added to the leases.
"""

import asyncio
from collections.abc import Mapping, Sequence

from skep.base.caller import Caller
from skep.base.errors import BadInput, Conflict, NoSpace, NotFound, Unavailable
from skep.base.ids import new_id
from skep.storage.database import Row, Tx, Value, upsert
from skep.topics.api import Commit, Lag, Lease, Membership, Part, Place, Topic
from skep.topics.service import FIRST_PLACE, MOVE_PLACE, OWN, Topics, part_of, resolve, valid_name

# Who of a group reads which partition (pure): shares differ by at most one, and what need not move stays.


def fair(owners: Mapping[int, str | None], members: Sequence[str]) -> dict[int, str]:
    """`owners`: partition -> who reads it now. With no members nobody reads anything."""
    if not members:
        return {}
    many, extra = divmod(len(owners), len(members))
    held: dict[str, list[int]] = {member: [] for member in members}
    for partition, owner in sorted(owners.items()):
        if owner in held:
            held[owner].append(partition)
    # whoever holds most keeps the one partition more
    ranked = sorted(members, key=lambda member: (-len(held[member]), member))
    quota = {member: many + (n < extra) for n, member in enumerate(ranked)}
    kept = {partition: member for member in members for partition in held[member][: quota[member]]}
    free = [partition for partition in sorted(owners) if partition not in kept]
    for member in ranked:
        short = quota[member] - min(len(held[member]), quota[member])
        for partition in free[:short]:
            kept[partition] = member
        free = free[short:]
    return kept


#: a member that has not been heard of for so long is out
MEMBER_SECONDS = 30.0
_OWN = "reader = :reader AND topic = :topic"
_PLACES = f"SELECT * FROM place WHERE {_OWN} ORDER BY partition"  # noqa: S608
_COMMIT = (
    "UPDATE place SET next_offset = CASE WHEN next_offset > :offset THEN next_offset ELSE :offset END, "  # noqa: S608
    f"member = CASE WHEN :back = 1 THEN NULL ELSE member END WHERE {_OWN} AND partition = :partition "
    "AND member = :member AND generation = :generation RETURNING partition"
)


class Groups:
    def __init__(self, topics: Topics, member_seconds: float = MEMBER_SECONDS) -> None:
        self._topics = topics
        self._db = topics.db
        self._seconds = member_seconds
        #: when somebody listened last, and since when without a break
        self._listened = self._listening = topics.clock.now()
        #: topic and group -> when one of it came last and could not be heard; not for longer than it matters
        self._deaf: dict[tuple[str, str], float] = {}

    async def follow(self) -> None:
        while True:
            self.listen()
            await asyncio.sleep(self._seconds / 10)

    def listen(self) -> None:
        """Called again and again: that this process stood still, or its machine slept, is noticed."""
        now = self._topics.clock.now()
        if self._is_long(now - self._listened):
            self._listening = now
        self._listened = now  # last: transactions may have a thread of their own

    def _is_long(self, seconds: float) -> bool:
        """What is shorter robs nobody who comes three times in its `member_seconds`, as our client does."""
        return seconds > self._seconds / 3

    def _heard_since(self, topic: str, group: str, came: float) -> float:
        """Since when this group is heard without a break, by the word of one that `came` then: it may have waited for a
        database that stood still. Each group for itself: where one is never heard, the gone of others must go."""
        self.listen()
        now = self._topics.clock.now()
        return now if self._is_long(now - came) else max(self._listening, self._deaf.get((topic, group), 0.0))

    async def join(
        self, caller: Caller, topic: str, group: str, *, member: str = "", start: str = "beginning"
    ) -> Membership:
        """Become or stay a member, and learn what to read. Called again and again, at least every few seconds."""
        try:
            return await self._join(caller, topic, group, member, start)
        except (Unavailable, NoSpace):
            now = self._topics.clock.now()
            late = {key: at for key, at in self._deaf.items() if at + self._seconds > now}
            self._deaf = {**late, (topic, group): now}
            raise

    async def _join(self, caller: Caller, topic: str, group: str, member: str, start: str) -> Membership:
        came = self._topics.clock.now()
        await self._allowed(caller, topic, group)
        if member:
            valid_name(member, "member")
        member = member or new_id("mem", came)
        starts = await self._topics.places(caller, topic, start)

        async def work(tx: Tx) -> Membership:
            places = await self._places(tx, topic, group, starts)
            alive = await self._alive(tx, topic, group, member, came)
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
        came = self._topics.clock.now()
        await self._allowed(caller, topic, group)
        for one in commits:
            _, end = await self._topics.log.bounds(await self._topics.part(topic, one.partition))
            if not 0 <= one.offset <= end:
                raise BadInput(f"partition {one.partition} of {topic!r} ends at {end}: no place {one.offset}")

        async def work(tx: Tx) -> None:
            for one in commits:
                own = {**_of(group, topic), "member": member, "partition": one.partition, "generation": one.generation}
                if not await tx.rows(_COMMIT, **own, offset=one.offset, back=int(one.give_back)):
                    raise Conflict(
                        f"partition {one.partition} of {topic!r} is no longer read by {member!r}",
                        hint="join again; what was not committed is read by another member",
                    )
            await self._touch(tx, topic, group, member, came)

        await self._db.write(work)

    async def leave(self, caller: Caller, topic: str, group: str, member: str) -> None:
        await self._allowed(caller, topic, group)

        async def work(tx: Tx) -> None:
            own = {**_of(group, topic), "member": member}
            await tx.rows(f"DELETE FROM reader_member WHERE {_OWN} AND member = :member", **own)  # noqa: S608
            await tx.rows(f"UPDATE place SET member = NULL WHERE {_OWN} AND member = :member", **own)  # noqa: S608

        await self._db.write(work)

    async def seek(self, caller: Caller, topic: str, group: str, to: str, partition: int | None = None) -> list[Lag]:
        """`beginning`, `end`, `time:SECONDS` or `offset:N`. Whoever reads now loses its lease and joins again."""
        caller.need("write")
        found = await self._allowed(caller, topic, group)
        chosen = range(found.partitions) if partition is None else [partition]
        offsets = {n: await resolve(self._topics.log, part_of(found, n), to) for n in chosen}
        rows = [{**_of(group, topic), "partition": n, "next_offset": at, "generation": 1} for n, at in offsets.items()]
        seek = f"{MOVE_PLACE}, member = NULL, generation = place.generation + 1"
        await self._db.write(lambda tx: tx.many(seek, rows))
        return await self.lag(caller, topic, group)

    async def lag(self, caller: Caller, topic: str, group: str) -> list[Lag]:
        caller.need("read")
        valid_name(group, "group")
        found = await self._topics.find(topic)
        rows = await self._db.read(_PLACES, **_of(group, topic))
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

    async def _places(self, tx: Tx, topic: str, group: str, starts: Sequence[Place]) -> list[Row]:
        """The places of a group, made at its first visit and locked, so that two who join at once agree."""
        own, new = _of(group, topic), [(start.partition, start.offset) for start in starts]
        rows = [{**own, "partition": n, "next_offset": offset, "generation": 0} for n, offset in new]
        await tx.many(FIRST_PLACE, rows)
        return await tx.rows(f"{_PLACES} FOR UPDATE", **own)

    async def _alive(self, tx: Tx, topic: str, group: str, member: str, came: float) -> list[str]:
        own, now = _of(group, topic), self._topics.clock.now()
        await self._touch(tx, topic, group, member, came)
        await tx.rows(f"DELETE FROM reader_member WHERE {_OWN} AND until < :now", **own, now=now)  # noqa: S608
        rows = await tx.rows(f"SELECT member FROM reader_member WHERE {_OWN} ORDER BY member", **own)  # noqa: S608
        return [row["member"] for row in rows]

    async def _touch(self, tx: Tx, topic: str, group: str, member: str, came: float) -> None:
        own, since, now = _of(group, topic), self._heard_since(topic, group, came), self._topics.clock.now()
        if now <= since + self._seconds:  # later it would change nothing
            await self._excuse(tx, own, since)
        await upsert(tx, "reader_member", "reader, topic, member", **own, member=member, until=now + self._seconds)

    async def _excuse(self, tx: Tx, own: dict[str, Value], since: float) -> None:
        """Leases that were good when one of the group was heard last, by whichever server, go on from when it could be
        heard again. Asked again, or by another server, it finds nothing to add."""
        [row] = await tx.rows(f"SELECT max(until) AS until FROM reader_member WHERE {_OWN}", **own)  # noqa: S608
        heard = since if row["until"] is None else row["until"] - self._seconds
        if heard < since:
            await tx.rows(
                f"UPDATE reader_member SET until = until + :missed WHERE {_OWN} AND until >= :heard",  # noqa: S608
                **own,
                missed=since - heard,
                heard=heard,
            )

    async def _take(self, tx: Tx, topic: str, group: str, member: str, row: Row) -> Lease:
        take = "UPDATE place SET member = :member, generation = generation + 1"
        own = {**_of(group, topic), "partition": row["partition"], "member": member}
        rows = await tx.rows(f"{take} WHERE {_OWN} AND partition = :partition RETURNING *", **own)
        return _lease(rows[0])

    async def list(self, caller: Caller, topic: str) -> list[str]:
        """Names of the groups that read a topic."""
        caller.need("read")
        rows = await self._db.read(
            "SELECT DISTINCT reader FROM place WHERE topic = :topic AND reader NOT LIKE '%/%' ORDER BY reader",
            topic=topic,
        )
        return [row["reader"] for row in rows]


def _of(group: str, topic: str) -> dict[str, Value]:
    return {"reader": group, "topic": topic}


def _lease(row: Row) -> Lease:
    return Lease(int(row["partition"]), int(row["generation"]), int(row["next_offset"]))
