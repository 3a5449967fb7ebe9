"""Sources that change hands: planned from who is there and who holds what, done one transaction at a time."""

import asyncio
import json
from collections.abc import Sequence

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.fleet import orders
from skep.fleet.events import DOWN, UNSTABLE_SECONDS
from skep.fleet.holdings import Raise, hand_over
from skep.fleet.plan import Change, Holding, Member, plan
from skep.fleet.service import OFFERED, Fleet, member_of
from skep.model.caller import SYSTEM


class Moves:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, raised: Raise) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._raised = raised

    async def plan(self) -> tuple[list[Member], list[Change]]:
        """Who is there, and what should change hands; both as they stand in one moment."""
        members, holdings = await self._db.write(self._standing, runtime=True)
        if self._fleet.is_early(members):
            return members, []
        return members, await asyncio.to_thread(plan, members, holdings)

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
        rows = await tx.rows("SELECT source, member, pins FROM holding ORDER BY source")
        holdings = [Holding(row["source"], row["member"], tuple(json.loads(row["pins"]))) for row in rows]
        return [member_of(row, often.get(row["id"], 0)) for row in members], holdings

    async def take_over(self, changes: Sequence[Change]) -> None:
        """From nobody, or from one that is gone: there is nobody to copy from, or to wait for."""

        async def work(tx: Tx) -> None:
            await orders.lock(tx)
            for change in changes:
                rows = await tx.rows("SELECT member FROM holding WHERE source = :source", source=change.source)
                if rows and rows[0]["member"] == change.old:
                    await self._hand_over(tx, change.source, change.old, change.new)
            tx.ring(OFFERED)  # tasks that wait for the holder have another one now

        await self._db.write(work)

    async def copied(self, source: str, member: str, epoch: int) -> bool:
        """The member has a copy of its own, and so becomes the holder. False: it is not wanted there, or the source has
        gone to somebody else meanwhile."""

        async def work(tx: Tx) -> bool:
            await orders.lock(tx)
            if not await tx.rows("SELECT id FROM source WHERE id = :id AND epoch = :epoch", id=source, epoch=epoch):
                return False
            rows = await tx.rows("SELECT member FROM holding WHERE source = :source", source=source)
            wanted = await tx.rows("SELECT id FROM member WHERE id = :id AND mirror = 1 AND draining = 0", id=member)
            if not rows or not wanted:
                return False
            tx.ring(OFFERED)
            old = rows[0]["member"]
            return old == member or await self._hand_over(tx, source, old, member)

        return await self._db.write(work)

    async def _hand_over(self, tx: Tx, source: str, old: str | None, new: str) -> bool:
        done = await hand_over(tx, source, old, new, self._raised)
        if done and old:  # what is only given out for the first time is no move
            await note(tx, self._clock.now(), SYSTEM, "source.move", f"{source} {old} {new}")
        return done
