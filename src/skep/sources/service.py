"""The catalogue: sources people asked for, where their entries stand, and every change that was ever told."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from skep.access.audit import note
from skep.base.answers import Added, BulkItem, Fetching, Page, shown_before
from skep.base.caller import Caller, Visibility
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound, SkepError, TooLarge
from skep.base.ids import new_id, new_ids
from skep.fleet.members import Fleet
from skep.sources.catalogue import (
    CATALOGUE,
    MOVED,
    STEPS,
    Address,
    Catalogue,
    New,
    by_hand,
    change_of,
    find,
    held,
    settings_with_labels,
    source_of,
)
from skep.sources.model import Change, Held, Source, SourceSettings
from skep.sources.source_type import Addresses
from skep.storage.database import Database, Row, Tx

# What people give beside a URL, checked.


def labels_of(labels: Sequence[str]) -> list[str]:
    for label in labels:
        if not label or len(label) > 100 or not label.isprintable():
            raise BadInput(f"{label[:40]!r} is not a label", hint="1 to 100 printable characters")
    return sorted(set(labels))


def settings_of(values: Mapping[str, Any]) -> SourceSettings:
    try:
        settings = msgspec.convert(values, SourceSettings)
    except msgspec.ValidationError as error:
        names = ", ".join(SourceSettings.__struct_fields__)
        raise BadInput(f"settings of a source: {error}", hint=f"there are {names}") from None
    if settings.poll_min and settings.poll_max and settings.poll_min > settings.poll_max:
        raise BadInput("settings of a source: poll_min is greater than poll_max")
    return settings


class Sources:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        fleet: Fleet,
        kinds: Mapping[str, Addresses],
        by_label: Mapping[str, SourceSettings] | None = None,
    ) -> None:
        """`by_label`: what sources with a label have in common, unless they say otherwise themselves."""
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._kinds = kinds
        self.catalogue = Catalogue(fleet)
        self.by_label = by_label or {}

    async def start(self) -> None:
        await self._db.migrate("sources", STEPS)
        for settings in self.by_label.values():
            self._kinds["git"].check_settings(settings)

    async def add(
        self,
        caller: Caller,
        url: str,
        *,
        kind: str = "git",
        visibility: Visibility = "public",
        labels: Sequence[str] = (),
    ) -> Added:
        caller.need("write")
        address = self.address(caller, kind, url)
        tags = json.dumps(labels_of(labels))
        now = self._clock.now()
        id = new_id("src", now)

        async def work(tx: Tx) -> str | None:
            known = await tx.rows("SELECT source FROM url WHERE canonical = :canonical", canonical=address.canonical)
            if known:
                await by_hand(tx, known[0]["source"])
                return str(known[0]["source"])
            await self.catalogue.insert(tx, [New(id, address, kind, visibility, tags)], now)
            await note(tx, now, caller, "source.add", address.canonical)
            tx.ring(CATALOGUE)
            return None

        try:
            known = await self._db.write(work)
        except Conflict:
            known = await self._db.write(work)  # another process added the same URL at this moment
        row = await self._row(known or id)
        if not caller.sees(row["visibility"]):
            raise Conflict(
                f"{address.canonical} is already mirrored as a private source",
                hint="ask an admin for the scope 'private'",
            )
        return Added(source_of(row), created=known is None)

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100, state: str | None = None) -> Page[Source]:
        caller.need("read")
        rows = await self._db.read(
            "SELECT * FROM source WHERE id > :page AND state <> 'removed' AND (:state = '' OR state = :state) "
            "AND (:private = 1 OR visibility = 'public') ORDER BY id LIMIT :limit",
            page=page,
            state=state or "",
            private=int(caller.sees("private")),
            limit=limit + 1,
        )
        items = [source_of(row, self._fleet.progress(row["id"])) for row in rows[:limit]]
        return Page(items, items[-1].id if len(rows) > limit else "")

    async def show(self, caller: Caller, ref: str) -> Source:
        caller.need("read")
        row = await find(self._db, self._kinds.values(), ref)
        if row is None or not caller.sees(row["visibility"]):
            raise NotFound(f"there is no source {ref!r}", hint="`skep source list` shows those there are")
        shown = source_of(row, self._fleet.progress(row["id"]))
        holder, replicas = await self._fleet.holder(shown.id), await self._fleet.replicas(shown.id)
        return msgspec.structs.replace(shown, holder=holder or "", replicas=tuple(replicas))

    async def update(
        self,
        caller: Caller,
        ref: str,
        *,
        url: str | None = None,
        visibility: Visibility | None = None,
        labels: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Source:
        """Change what is given. A new URL keeps the mirror: the next look compares it with the new upstream.

        Of `settings` only those named change; None takes one back.
        """
        caller.need("write")
        source = await self.show(caller, ref)
        tags = None if labels is None else json.dumps(labels_of(labels))
        address = None if url is None else self.address(caller, source.kind, url)
        wishes = self.settings(source.kind, {**msgspec.structs.asdict(source.settings), **(settings or {})})

        async def work(tx: Tx) -> None:
            if address is not None:
                taken = await tx.rows("SELECT source FROM url WHERE canonical = :url", url=address.canonical)
                if taken and taken[0]["source"] != source.id:
                    raise Conflict(f"{address.canonical} is another source already", hint="remove one of the two")
                await self.catalogue.readdress(tx, source, address)
            await self.catalogue.change(tx, source.id, visibility, tags, msgspec.json.encode(wishes).decode())
            await note(tx, self._clock.now(), caller, "source.update", source.id)
            tx.ring(CATALOGUE)

        await self._db.write(work)
        return await self.show(caller, source.id)

    async def fetch(self, caller: Caller, ref: str) -> Fetching:
        """Look at the upstream now, whatever the schedule says."""
        caller.need("write")
        source = await self.show(caller, ref)
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            await self._fleet.ask(tx, "fetch", source.id)
            await note(tx, now, caller, "source.fetch", source.id)

        await self._db.write(work)
        return Fetching(source, now)

    async def fetch_url(self, caller: Caller, url: str, *, visibility: Visibility = "public") -> Fetching:
        """As `fetch`, for a URL that may not be known yet: then it is added, where that is permitted."""
        try:
            return await self.fetch(caller, url)
        except NotFound:
            added = await self.add(caller, url, visibility=visibility)
            return Fetching(added.source, added.source.added_at)

    async def accept(self, caller: Caller, ref: str, *, loss: str = "") -> Source:
        """A person agrees with what the upstream did: the loss the source asks about, and no other, is followed.

        With `loss`, only if that is the one."""
        caller.need("write")
        source = await self.show(caller, ref)
        if source.state != "asking" or source.failure is None:
            raise Conflict(f"{source.name} asks for nothing: it is {source.state}")
        if loss not in ("", source.failure.loss):
            raise Conflict(f"{source.name} asks about something else by now", hint="look again at what would be lost")
        loss = source.failure.loss

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE source SET accepted = :loss WHERE id = :id", loss=loss, id=source.id)
            await self._fleet.ask(tx, "hold", source.id)
            await note(tx, self._clock.now(), caller, "source.accept", source.id)

        await self._db.write(work)
        return source

    async def remove(self, caller: Caller, ref: str) -> Source:
        """Gone from the catalogue at once; the holder deletes the mirror. Added again it is another source."""
        caller.need("write")
        source = await self.show(caller, ref)

        async def work(tx: Tx) -> None:
            await self.catalogue.discard(tx, [source.id])
            await note(tx, self._clock.now(), caller, "source.remove", source.url)

        await self._db.write(work)
        return source

    async def raise_epoch(self, tx: Tx, source: str) -> int | None:
        """It has another holder from now on; None: it was removed."""
        rows = await tx.rows(
            "UPDATE source SET epoch = epoch + 1 WHERE id = :id AND state <> 'removed' RETURNING epoch", id=source
        )
        return int(rows[0]["epoch"]) if rows else None

    async def wait(
        self,
        caller: Caller,
        ref: str,
        *,
        looked_after: float = 0.0,
        timeout: float = 30.0,
        ready: Callable[[Source], Awaitable[bool]] | None = None,
    ) -> tuple[Source, bool]:
        """Until the source is searchable at its newest known commit, or failing; False when `timeout` passed first.

        `ready` decides instead for a source that is not failing.
        """
        id = (await self.show(caller, ref)).id
        until = self._clock.now() + timeout
        async with self._db.listen(MOVED) as bell:
            while True:
                source = await self.show(caller, id)
                if ready is not None and source.state == "current":
                    settled = await ready(source)
                else:
                    settled = await self._settled(source, looked_after)
                if settled:
                    return source, True
                left = until - self._clock.now()
                if left <= 0:
                    return source, False
                await bell.wait(min(left, 5.0))

    async def _settled(self, source: Source, looked_after: float) -> bool:
        if source.state in ("new", "cloning") or (source.last_looked or 0.0) < looked_after:
            return False
        if source.state != "current":
            return True
        return source.indexed_commit == await self.newest(source)

    async def newest(self, source: Source) -> str | None:
        """The commit of the default branch as last told; None while it has none."""
        rows = await self._db.read(
            "SELECT version FROM entry WHERE source = :id AND name = :branch",
            id=source.id,
            branch=f"refs/heads/{source.default_branch}",
        )
        return rows[0]["version"] if rows else None

    async def changes(self, caller: Caller, ref: str, *, page: str = "", limit: int = 100) -> Page[Change]:
        source = await self.show(caller, ref)
        skip = shown_before(page)
        rows = await self._db.read(
            "SELECT * FROM change WHERE source = :id AND (:private = 1 OR visibility = 'public') "
            "ORDER BY at DESC, seq DESC, id LIMIT :limit OFFSET :skip",
            id=source.id,
            private=int(caller.sees("private")),
            limit=limit + 1,
            skip=skip,
        )
        return Page([change_of(row) for row in rows[:limit]], str(skip + limit) if len(rows) > limit else "")

    async def held(self, id: str) -> Held | None:
        return (await self.held_many([id])).get(id)

    async def held_many(self, ids: Sequence[str]) -> dict[str, Held]:
        """What holders need to know of sources: the bodies of Hold orders."""
        return await held(self._db, ids, self.by_label)

    async def settings_with_labels(self, ids: Sequence[str]) -> dict[str, SourceSettings]:
        return await settings_with_labels(self._db, ids, self.by_label)

    async def is_former(self, name: str) -> bool:
        """A source had this name before, and none has it now."""
        rows = await self._db.read(
            "SELECT name FROM former_name WHERE name = :name AND NOT EXISTS "
            "(SELECT 1 FROM source WHERE source.name = former_name.name AND state <> 'removed')",
            name=name,
        )
        return bool(rows)

    def address(self, caller: Caller, kind: str, url: str) -> Address:
        """BadUrl or NotAllowed when the caller may not have it mirrored."""
        if kind not in self._kinds:
            raise BadInput(f"{kind!r} is not a kind of source", hint=f"known kinds: {', '.join(sorted(self._kinds))}")
        addresses = self._kinds[kind]
        addresses.check(url, local=caller.may("admin"))
        canonical = addresses.canonical(url)
        return Address(canonical, addresses.clean(url), addresses.name(canonical))

    def settings(self, kind: str, values: Mapping[str, Any]) -> SourceSettings:
        """BadInput when a source of this kind cannot be set so."""
        settings = settings_of(values)
        self._kinds[kind].check_settings(settings)
        return settings

    async def _row(self, id: str) -> Row:
        return (await self._db.read("SELECT * FROM source WHERE id = :id", id=id))[0]


# Many sources in one call: each URL has a fate of its own, a thousand of them share a transaction.

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
