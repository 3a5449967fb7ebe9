"""Sources that change hands, and their copies: planned from who is there and who has what, done one transaction at a
time."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.fleet import orders
from skep.fleet.events import DOWN, UNSTABLE_SECONDS
from skep.fleet.holdings import Raise, hand_over
from skep.fleet.plan import Change, Holding, Member, Plan, plan
from skep.fleet.service import OFFERED, Fleet, member_of
from skep.model.caller import SYSTEM

#: a copy that takes longer keeps no other from beginning
PATIENCE = 3_600.0
#: of a holder that changed meanwhile no copy is made, nor of a source that is gone
_COPY = (
    "INSERT INTO source_replica (source, member, complete, at) SELECT source, :member, 0, :now FROM holding "
    "WHERE source = :source AND member <> :member ON CONFLICT (source, member) DO NOTHING RETURNING source"
)


class Moves:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, raised: Raise, replicas: int = 1) -> None:
        """`replicas`: how many have each source, its holder among them."""
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._raised = raised
        self._replicas = replicas

    async def plan(self) -> tuple[list[Member], Plan]:
        """Who is there, and what should change; both as they stand in one moment."""
        members, holdings = await self._db.write(self._standing, runtime=True)
        if self._fleet.is_early(members):
            return members, Plan([], [], [])
        return members, await asyncio.to_thread(plan, members, holdings, self._replicas)

    async def unfetched(self) -> dict[str, bool]:
        """Sources of which nobody has anything yet, and whether they have failed; else they are being cloned."""
        rows = await self._db.read("SELECT id, failures FROM source WHERE last_fetched IS NULL AND state <> 'removed'")
        return {row["id"]: row["failures"] > 0 for row in rows}

    async def _standing(self, tx: Tx) -> tuple[list[Member], list[Holding]]:
        downs = await tx.rows(
            "SELECT member, count(*) AS n FROM member_event WHERE what = :down AND at > :since GROUP BY member",
            down=DOWN,
            since=self._clock.now() - UNSTABLE_SECONDS,
        )
        often = {row["member"]: int(row["n"]) for row in downs}
        members = await tx.rows("SELECT * FROM member WHERE mirror = 1")
        having: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for row in await tx.rows("SELECT source, member, complete FROM source_replica ORDER BY member"):
            having[row["source"], row["complete"]].append(row["member"])
        holdings = [
            Holding(
                row["source"],
                row["member"],
                tuple(json.loads(row["pins"])),
                *(tuple(having.get((row["source"], complete), ())) for complete in (1, 0)),
            )
            for row in await tx.rows("SELECT source, member, pins FROM holding ORDER BY source")
        ]
        return [member_of(row, often.get(row["id"], 0)) for row in members], holdings

    async def take_over(self, changes: Sequence[Change]) -> None:
        """By who has a copy; or from nobody, or from one that is gone: there is nobody to copy from, or to wait for."""

        async def work(tx: Tx) -> None:
            await orders.lock(tx)
            for change in changes:
                rows = await tx.rows("SELECT member FROM holding WHERE source = :source", source=change.source)
                if rows and rows[0]["member"] == change.old:
                    await self._hand_over(tx, change)
            tx.ring(OFFERED)  # tasks that wait for the holder have another one now

        await self._db.write(work)

    async def _hand_over(self, tx: Tx, change: Change) -> None:
        now, (source, old, new) = self._clock.now(), (change.source, change.old, change.new)
        done = await hand_over(tx, source, old, new, self._raised, keep=change.keep, now=now)
        if done and old:  # what is only given out for the first time is no move
            await note(tx, now, SYSTEM, "source.move", f"{source} {old} {new}")

    async def copy(self, wanted: Sequence[tuple[str, str]]) -> None:
        """These members (source, member) make copies from now on, and keep them up to date."""

        async def work(tx: Tx) -> None:
            await orders.lock(tx)
            now = self._clock.now()
            new = [one for one in wanted if await tx.rows(_COPY, source=one[0], member=one[1], now=now)]
            await orders.order_instead(tx, "copy", new)

        await self._db.write(work)

    async def release(self, spare: Sequence[tuple[str, str]]) -> None:
        """These members let go of their copies, complete or not, when they hear of it."""

        async def work(tx: Tx) -> None:
            await orders.lock(tx)
            sql = "DELETE FROM source_replica WHERE source = :source AND member = :member RETURNING source"
            gone = [one for one in spare if await tx.rows(sql, source=one[0], member=one[1])]
            await orders.order_instead(tx, "release", gone)

        await self._db.write(work)

    async def copied(self, source: str, member: str) -> None:
        """The member has all of it."""
        sql = "UPDATE source_replica SET complete = 1 WHERE source = :source AND member = :member"
        await self._db.write(lambda tx: tx.rows(sql, source=source, member=member))

    async def under_way(self) -> int:
        sql = "SELECT count(*) AS n FROM source_replica WHERE complete = 0 AND at > :since"
        rows = await self._db.read(sql, since=self._clock.now() - PATIENCE)
        return int(rows[0]["n"])
