"""Many sources in one call: each URL has a fate of its own, a thousand of them share a transaction."""

import json
from collections.abc import Sequence

import msgspec

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.errors import SkepError, TooLarge
from skep.model.answers import BulkItem
from skep.model.caller import Caller, Visibility
from skep.model.ids import new_ids
from skep.model.source import Source
from skep.sources.catalogue import CATALOGUE, Address, New, by_hand
from skep.sources.given import labels_of
from skep.sources.service import Sources

MOST = 10_000
_AT_ONCE = 1_000
_PRIVATE = "it is already mirrored as a private source; ask an admin for the scope 'private'"


class BulkSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not given stays, or is as for any new source."""

    url: str
    #: id, name or URL of a source that has this URL from now on, and keeps its mirror
    ref: str = ""
    visibility: Visibility | None = None
    labels: tuple[str, ...] | None = None


class _Plan(msgspec.Struct, frozen=True):
    """A wish that passed every check that needs no transaction."""

    wanted: BulkSource
    address: Address
    labels: str | None
    target: Source | None


class Bulk:
    def __init__(self, db: Database, clock: Clock, sources: Sources) -> None:
        self._db = db
        self._clock = clock
        self._sources = sources
        self._catalogue = sources.catalogue

    async def take(self, caller: Caller, wanted: Sequence[BulkSource]) -> list[BulkItem]:
        caller.need("write")
        if len(wanted) > MOST:
            raise TooLarge(f"{len(wanted):,} sources in one call", hint=f"give at most {MOST:,}")
        items: list[BulkItem] = []
        for first in range(0, len(wanted), _AT_ONCE):
            plans = [await self._plan(caller, one) for one in wanted[first : first + _AT_ONCE]]
            items += await self._carry_out(caller, plans)
        return items

    async def _plan(self, caller: Caller, wanted: BulkSource) -> _Plan | BulkItem:
        try:
            target = await self._sources.show(caller, wanted.ref) if wanted.ref else None
            address = self._sources.address(caller, target.kind if target else "git", wanted.url)
            labels = None if wanted.labels is None else json.dumps(labels_of(wanted.labels))
        except SkepError as error:
            return BulkItem(wanted.url, "refused", reason=f"{error.message}; {error.hint}".rstrip("; "))
        return _Plan(wanted, address, labels, target)

    async def _carry_out(self, caller: Caller, plans: Sequence[_Plan | BulkItem]) -> list[BulkItem]:
        now = self._clock.now()
        ids = new_ids("src", now, len(plans))

        async def work(tx: Tx) -> list[BulkItem]:
            # whoever else adds waits from here on: what is looked up now stays true
            await tx.rows("SELECT number FROM source_count WHERE id = 0 FOR UPDATE")
            known = await _known(tx, [plan.address.canonical for plan in plans if isinstance(plan, _Plan)])
            made: list[New] = []
            items: list[BulkItem] = []
            for id, plan in zip(ids, plans, strict=True):
                if isinstance(plan, BulkItem):
                    items.append(plan)
                elif plan.target is not None:
                    items.append(await self._move(tx, caller, plan, plan.target, known))
                elif plan.address.canonical in known:
                    items.append(await self._touch(tx, caller, plan, known[plan.address.canonical]))
                else:
                    visibility: Visibility = plan.wanted.visibility or "public"
                    made.append(New(id, plan.address, visibility=visibility, labels=plan.labels or "[]"))
                    known[plan.address.canonical] = msgspec.structs.asdict(made[-1])
                    items.append(BulkItem(plan.wanted.url, "added", id))
            await self._catalogue.insert(tx, made, now)
            changed = sum(item.status == "updated" for item in items)
            if made or changed:
                await note(tx, now, caller, "source.bulk", f"{len(made)} added, {changed} updated")
                tx.ring(CATALOGUE)
            return items

        return await self._db.write(work)

    async def _move(self, tx: Tx, caller: Caller, plan: _Plan, target: Source, known: dict[str, Row]) -> BulkItem:
        """Another URL for a source that is there."""
        holder = known.get(plan.address.canonical)
        if holder is not None and holder["id"] != target.id:
            return BulkItem(plan.wanted.url, "refused", reason="it is another source already; remove one of the two")
        if holder is None:
            await self._catalogue.readdress(tx, target, plan.address)
            for former in [canonical for canonical, row in known.items() if row["id"] == target.id]:
                del known[former]
            row = {"id": target.id, "visibility": target.visibility, "labels": json.dumps(target.labels)}
            known[plan.address.canonical] = row
            await self._catalogue.change(tx, target.id, plan.wanted.visibility, plan.labels)
            return BulkItem(plan.wanted.url, "updated", target.id)
        return await self._touch(tx, caller, plan, holder)

    async def _touch(self, tx: Tx, caller: Caller, plan: _Plan, row: Row) -> BulkItem:
        """A URL that is known; what else is wanted of it may differ."""
        wanted = plan.wanted
        if not caller.sees(row["visibility"]):
            return BulkItem(wanted.url, "refused", reason=_PRIVATE)
        await by_hand(tx, row["id"])
        same_seen = wanted.visibility in (None, row["visibility"])
        if same_seen and plan.labels in (None, json.dumps(json.loads(row["labels"]))):
            return BulkItem(wanted.url, "known", row["id"])
        await self._catalogue.change(tx, row["id"], wanted.visibility, plan.labels)
        return BulkItem(wanted.url, "updated", row["id"])


async def _known(tx: Tx, canonicals: list[str]) -> dict[str, Row]:
    rows = await tx.rows(
        "SELECT url.canonical, source.id, source.visibility, source.labels FROM url "
        "JOIN source ON source.id = url.source WHERE url.canonical IN (:canonicals)",
        canonicals=canonicals,
    )
    return {row["canonical"]: row for row in rows}
