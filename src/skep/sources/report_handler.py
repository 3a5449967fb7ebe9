"""What holders report becomes the catalogue's truth: fenced by epoch, counted by entry, told in one transaction."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.base.ids import change_id, failure_id, new_id
from skep.sources.catalogue import MOVED
from skep.sources.model import Change, Failure, Move, SourceState
from skep.storage.code_index.model import Tip, digest_of_tips
from skep.storage.database import Database, Row, Tx, Value, insert, inserting, update, upserting
from skep.topics.api import Draft
from skep.topics.service import CHANGES, FAILURES, INDEXED, Topics


class Accepted(msgspec.Struct, frozen=True):
    """Stored, now or by an earlier delivery of the same report."""


class Stale(msgspec.Struct, frozen=True):
    """Never acceptable: the source is gone or has another holder."""

    reason: str


class Epoch(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def epoch(self) -> int: ...


class Looked(Epoch, Protocol):
    @property
    def at(self) -> float: ...
    @property
    def next_poll(self) -> float: ...


class Intake:
    def __init__(self, db: Database, topics: Topics) -> None:
        self._db = db
        self._topics = topics

    async def taken(self, sources: Sequence[str]) -> None:
        """A worker holds them now and will clone those that are new."""
        if not sources:
            return

        async def work(tx: Tx) -> None:
            await tx.many(
                "UPDATE source SET state = 'cloning' WHERE id = :id AND state = 'new'", [{"id": id} for id in sources]
            )
            tx.ring(MOVED)

        await self._db.write(work, runtime=True)

    async def looked(self, member: str, reports: Sequence[Looked]) -> None:
        """What others hold is not its own to tell of."""
        rows: list[dict[str, Value]] = [
            {"id": r.source, "epoch": r.epoch, "at": r.at, "next": r.next_poll, "member": member} for r in reports
        ]

        async def work(tx: Tx) -> None:
            await tx.many(
                "UPDATE source SET last_looked = :at, next_poll = :next WHERE id = :id AND epoch = :epoch "
                "AND EXISTS (SELECT 1 FROM holding WHERE source = :id AND member = :member)",
                rows,
            )

        await self._db.write(work, runtime=True)

    async def fetched(
        self, report: Looked, batch: str, moves: Sequence[Move], *, first: bool, default_branch: str
    ) -> Accepted | Stale:
        async def work(tx: Tx) -> Accepted | Stale:
            source = await current(tx, report)
            if isinstance(source, Stale):
                return source
            # the holder's clock may have been behind: changes are told in the order of their times all the same
            at = max(report.at, source["last_changed"] or 0.0)
            once = "ON CONFLICT (id) DO NOTHING RETURNING id"
            if not await insert(tx, "batch", once, id=batch, source=report.source, at=at):
                return Accepted()
            changes = await _advance(tx, report.source, batch, moves, at, first=first)
            await tx.rows(
                "UPDATE source SET state = 'current', failure = NULL, failures = 0, default_branch = :branch, "
                "last_looked = :at, last_fetched = :at, next_poll = :next, "
                "last_changed = CASE WHEN :changed = 1 THEN :at ELSE last_changed END WHERE id = :id",
                branch=default_branch,
                at=at,
                next=report.next_poll,
                changed=int(bool(changes)),
                id=report.source,
            )
            await tell_changes(tx, self._topics, source, changes)
            if source["failure"]:
                await self._topics.tell(tx, FAILURES, [_trouble(source, report, None)], report.at)
            tx.ring(MOVED)
            return Accepted()

        return await self._db.write(work)

    async def failed(self, report: Looked, failure: Failure, failures: int) -> Accepted | Stale:
        async def work(tx: Tx) -> Accepted | Stale:
            source = await current(tx, report)
            if isinstance(source, Stale):
                return source
            now: dict[str, Value] = {"state": _state(failure, source), "failure": msgspec.json.encode(failure).decode()}
            now |= {"failures": failures, "last_looked": report.at, "next_poll": report.next_poll}
            await update(tx, "source", "id", id=report.source, **now)
            if not source["failure"] or msgspec.json.decode(source["failure"], type=Failure).kind != failure.kind:
                await self._topics.tell(tx, FAILURES, [_trouble(source, report, failure)], report.at)
            tx.ring(MOVED)
            return Accepted()

        return await self._db.write(work)

    async def indexed(self, source: str, tips: tuple[Tip, ...], now: float) -> None:
        """The aggregator answers from these commits now."""
        commit, stand = (tips[0].commit, digest_of_tips(tips)) if tips else (None, None)

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT name, indexed_tips FROM source WHERE id = :id FOR UPDATE", id=source)
            if commit and rows and rows[0]["indexed_tips"] != stand:
                id = new_id("idx", now)
                event = {"id": id, "source": source, "name": rows[0]["name"], "commit": commit, "at": now}
                await self._topics.tell(tx, INDEXED, [Draft(msgspec.json.encode(event), id, source)], now)
            await update(tx, "source", "id", id=source, indexed_commit=commit, indexed_tips=stand, indexed_at=now)
            tx.ring(MOVED)

        await self._db.write(work)


async def current(tx: Tx, report: Epoch) -> Row | Stale:
    rows = await tx.rows("SELECT * FROM source WHERE id = :id FOR UPDATE", id=report.source)
    if not rows or rows[0]["state"] == "removed":
        return Stale("this source was removed")
    if rows[0]["epoch"] != report.epoch:
        return Stale(f"epoch {report.epoch} is over; the source is in epoch {rows[0]['epoch']}")
    return rows[0]


async def _advance(tx: Tx, source: str, batch: str, moves: Sequence[Move], at: float, *, first: bool) -> list[Change]:
    """Each entry's own count goes up by one. A deleted entry keeps its row, so that its count goes on if it returns."""
    rows = await tx.rows("SELECT name, seq, version FROM entry WHERE source = :source", source=source)
    standing = {row["name"]: (int(row["seq"]), row["version"]) for row in rows}
    changes: list[Change] = []
    for move in moves:
        seq, old = standing.get(move.entry, (0, None))
        if old == move.new:
            continue
        id = change_id(source, move.entry, seq + 1)
        changes.append(Change(id, source, move.entry, seq + 1, old, move.new, batch, first=first, at=at))
    await tx.many(
        upserting("entry", ("source", "name", "seq", "version"), "source, name"),
        [{"source": c.source, "name": c.entry, "seq": c.seq, "version": c.new} for c in changes],
    )
    return changes


def _state(failure: Failure, source: Row) -> SourceState:
    if failure.loss:
        return "asking"
    return "gone" if failure.kind == "gone" and source["last_fetched"] else "failing"


def _trouble(source: Row, report: Looked, failure: Failure | None) -> Draft:
    """A source began to fail, fails in another way, or (None) is well again."""
    id = failure_id(report.source, report.at)
    event = {"id": id, "source": report.source, "name": source["name"], "url": source["url"], "at": report.at}
    told = {"kind": failure.kind, "message": failure.message} if failure else {"kind": None, "message": ""}
    return Draft(msgspec.json.encode(event | told), id, report.source)


async def tell_changes(tx: Tx, topics: Topics, source: Row, changes: Sequence[Change]) -> None:
    """They are stored and told; their ids were not used before."""
    if not changes:
        return
    rows = [{**msgspec.structs.asdict(c), "first": int(c.first)} for c in changes]
    await tx.many(inserting("change", Change.__struct_fields__), rows)
    await topics.tell(tx, CHANGES, [_draft(source, change) for change in changes], changes[0].at, repeats=False)


def _draft(source: Row, change: Change) -> Draft:
    body = {**msgspec.structs.asdict(change), "name": source["name"], "url": source["url"], "kind": source["kind"]}
    return Draft(msgspec.json.encode(body), id=change.id, key=change.source)
