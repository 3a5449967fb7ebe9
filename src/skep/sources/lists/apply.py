"""What a list wants becomes what the catalogue has, a thousand entries to a transaction.

Every step may be repeated: an entry that stands as it should is not touched. An entry that has left its file is only
marked as gone; `remove` takes those away afterwards, so that a source which moved to another file or another list is
never without an owner on its way.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import msgspec

from skep.base.caller import Visibility
from skep.base.clock import Clock
from skep.base.ids import new_ids
from skep.fleet.members import Fleet
from skep.sources.catalogue import CATALOGUE, REVISED, Catalogue, New, revise, source_of
from skep.sources.lists.list_file import Entry, Problem
from skep.sources.model import Source, SourceSettings
from skep.storage.database import Database, Row, Tx, Value, insert, inserting, upserting

AT_ONCE = 1_000
_KEY = ("list", "file", "name")
_SAID = ("canonical", "url", "labels", "settings", "workers", "visibility")
#: what may change without changing the source
_BESIDE = ("line", "fingerprint")


class Wanted(msgspec.Struct, frozen=True):
    """What one file of a list says now; an empty stamp: there is no such file any more."""

    list: str
    file: str
    stamp: str
    entries: Sequence[Entry] = ()
    problems: Sequence[Problem] = ()
    #: of entries that do not say
    visibility: Visibility = "public"


class _Case(msgspec.Struct):
    """An entry that is new or says something else than before."""

    entry: Entry
    row: dict[str, Any]
    old: Row | None


class Apply:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, catalogue: Catalogue) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._catalogue = catalogue

    async def file(self, wanted: Wanted) -> None:
        starts = range(0, max(len(wanted.entries), 1), AT_ONCE)
        for start in starts:
            chunk = wanted.entries[start : start + AT_ONCE]
            await self._db.write(partial(self._step, wanted, chunk, last=start == starts[-1]))

    async def _step(self, wanted: Wanted, chunk: Sequence[Entry], tx: Tx, *, last: bool) -> None:
        await _lock(tx)
        await self._take(tx, wanted, chunk)
        if last:
            await _finish(tx, wanted)

    async def _take(self, tx: Tx, wanted: Wanted, chunk: Sequence[Entry]) -> None:
        before = await _before(tx, wanted, [entry.name for entry in chunk])
        rows = [_row(wanted, entry) for entry in chunk]
        pairs = [(old, row) for row in rows if (old := before.get(str(row["name"])))]
        await tx.many(
            "UPDATE listed SET line = :line, fingerprint = :fingerprint "
            "WHERE list = :list AND file = :file AND name = :name",
            [_only(row, *_KEY, *_BESIDE) for old, row in pairs if any(old[name] != row[name] for name in _BESIDE)],
        )
        moved = [old["source"] for old, row in pairs if old["fingerprint"] != row["fingerprint"]]
        await self._fleet.ask_many(tx, "fetch", moved)
        changed = [
            _Case(entry, row, before.get(entry.name))
            for entry, row in zip(chunk, rows, strict=True)
            if _differs(before.get(entry.name), row)
        ]
        if changed:
            await self._settle(tx, wanted, changed)

    async def _settle(self, tx: Tx, wanted: Wanted, changed: Sequence[_Case]) -> None:
        """Find the source of each: the one that has its URL, the one it had before, or a new one."""
        known = await _known(tx, [case.entry.address.canonical for case in changed])
        movable = await self._movable(tx, changed)
        made: dict[str, _Case] = {}
        touched: list[str] = []
        for id, case in zip(new_ids("src", self._clock.now(), len(changed)), changed, strict=True):
            address, old = case.entry.address, case.old
            source = known.get(address.canonical)
            if source is not None:
                movable.pop(source, None)
                touched.append(source)
            elif old is not None and old["source"] in movable:
                source = old["source"]
                await self._catalogue.readdress(tx, movable.pop(source), address)
                known.pop(old["canonical"], None)
                touched.append(source)
            else:
                source = id
                made[id] = case
            known[address.canonical] = case.row["source"] = source
        await self._add(tx, made)
        upsert = upserting("listed", changed[0].row, ", ".join(_KEY))
        await tx.many(upsert, [case.row for case in changed])
        await tx.many(upsert, [former for case in changed if (former := _former(case))])
        await self._agree(tx, [*dict.fromkeys(touched)])

    async def _add(self, tx: Tx, made: Mapping[str, _Case]) -> None:
        new = [
            New(
                *(id, case.entry.address, "git", case.row["visibility"], case.row["labels"], case.row["settings"]),
                size=case.entry.size,
                by_list=1,
                workers=case.entry.workers,
            )
            for id, case in made.items()
        ]
        await self._catalogue.insert(tx, new, self._clock.now())

    async def _movable(self, tx: Tx, changed: Sequence[_Case]) -> dict[str, Source]:
        """Sources that only one of these entries names, and whose mirror therefore may follow it to another URL."""
        own = {case.old["source"]: case.entry.name for case in changed if case.old and _moves(case)}
        if not own:
            return {}
        list, file = changed[0].row["list"], changed[0].row["file"]
        others = await tx.rows("SELECT * FROM listed WHERE gone = 0 AND source IN (:ids)", ids=[*own])
        keys = {(row["source"], row["list"], row["file"], row["name"]) for row in others}
        shared = {key[0] for key in keys if key[1:] != (list, file, own[key[0]])}
        rows = await tx.rows(
            "SELECT * FROM source WHERE by_list = 1 AND state <> 'removed' AND id IN (:ids)", ids=[*own]
        )
        return {row["id"]: source_of(row) for row in rows if row["id"] not in shared}

    async def _agree(self, tx: Tx, sources: list[str]) -> None:
        """A source that lists have added is as all its entries together say; one added by hand stays as it is."""
        rows = await tx.rows("SELECT * FROM listed WHERE gone = 0 AND source IN (:ids)", ids=sources)
        said: dict[str, list[Row]] = {}
        for row in sorted(rows, key=lambda row: [row[name] for name in _KEY]):
            said.setdefault(row["source"], []).append(row)
        await revise(tx)
        await tx.many(
            f"UPDATE source SET labels = :labels, settings = :settings, visibility = :visibility, {REVISED} "  # noqa: S608
            "WHERE id = :id AND by_list = 1",
            [{"id": id, **_together(theirs)} for id, theirs in said.items()],
        )
        await self._fleet.pin_many(tx, {id: json.loads(theirs[0]["workers"]) for id, theirs in said.items()})
        await self._fleet.ask_many(tx, "hold", sources)

    async def remove(self, list: str, *, all: bool = False) -> bool:
        """Take away entries that are gone (or all), at most a thousand; what no entry names any more is removed."""
        which = "" if all else "AND gone = 1"

        async def work(tx: Tx) -> bool:
            await _lock(tx)
            rows = await tx.rows(
                f"SELECT list, file, name, source FROM listed WHERE list = :list {which} LIMIT :most",  # noqa: S608
                list=list,
                most=AT_ONCE,
            )
            await tx.many(
                "DELETE FROM listed WHERE list = :list AND file = :file AND name = :name",
                [_only(row, *_KEY) for row in rows],
            )
            sources = [*dict.fromkeys(row["source"] for row in rows)]
            named = {
                row["source"] for row in await tx.rows("SELECT source FROM listed WHERE source IN (:ids)", ids=sources)
            }
            ours = await tx.rows(
                "SELECT id FROM source WHERE by_list = 1 AND state <> 'removed' AND id IN (:ids)", ids=sources
            )
            await self._catalogue.discard(tx, [row["id"] for row in ours if row["id"] not in named])
            await self._agree(tx, [*named])
            tx.ring(CATALOGUE)
            return bool(rows)

        return await self._db.write(work)


async def _lock(tx: Tx) -> None:
    """Whoever else adds waits from here on: what is looked up now stays true."""
    await tx.rows("SELECT number FROM source_count WHERE id = 0 FOR UPDATE")


async def _before(tx: Tx, wanted: Wanted, names: list[str]) -> dict[str, Row]:
    sql = "SELECT * FROM listed WHERE list = :list AND file = :file AND name IN (:names)"
    return {row["name"]: row for row in await tx.rows(sql, names=names, list=wanted.list, file=wanted.file)}


async def _known(tx: Tx, canonicals: list[str]) -> dict[str, str]:
    rows = await tx.rows("SELECT canonical, source FROM url WHERE canonical IN (:all)", all=canonicals)
    return {row["canonical"]: row["source"] for row in rows}


async def _finish(tx: Tx, wanted: Wanted) -> None:
    """What the file no longer names is marked; then the file counts as read."""
    place: dict[str, Value] = {"list": wanted.list, "file": wanted.file}
    living = await tx.rows("SELECT name FROM listed WHERE list = :list AND file = :file AND gone = 0", **place)
    gone = {row["name"] for row in living} - {entry.name for entry in wanted.entries}
    await tx.many(
        "UPDATE listed SET gone = 1 WHERE list = :list AND file = :file AND name = :name",
        [{**place, "name": name} for name in sorted(gone)],
    )
    await tx.rows("DELETE FROM list_problem WHERE list = :list AND file = :file", **place)
    await tx.rows("DELETE FROM list_file WHERE list = :list AND file = :file", **place)
    if not wanted.stamp:
        return
    await insert(tx, "list_file", **place, stamp=wanted.stamp, entries=len(wanted.entries))
    await tx.many(
        inserting("list_problem", (*place, "n", "line", "message")),
        [{**place, "n": n, "line": one.line, "message": one.message} for n, one in enumerate(wanted.problems)],
    )


def _row(wanted: Wanted, entry: Entry) -> dict[str, Value]:
    return {
        "list": wanted.list,
        "file": wanted.file,
        "name": entry.name,
        "line": entry.line,
        "canonical": entry.address.canonical,
        "url": entry.address.url,
        "labels": json.dumps(entry.labels),
        "settings": _json(entry.settings),
        "workers": json.dumps(entry.workers),
        "visibility": entry.visibility or wanted.visibility,
        "fingerprint": entry.fingerprint,
        "source": "",
        "gone": 0,
    }


def _together(rows: Sequence[Row]) -> dict[str, Value]:
    """All labels; of settings what is said first; private when one says so."""
    settings = reduce(SourceSettings.over, (msgspec.json.decode(row["settings"], type=SourceSettings) for row in rows))
    labels = {label for row in rows for label in json.loads(row["labels"])}
    private = any(row["visibility"] == "private" for row in rows)
    return {
        "labels": json.dumps(sorted(labels)),
        "settings": _json(settings),
        "visibility": "private" if private else "public",
    }


def _json(settings: SourceSettings) -> str:
    return msgspec.json.encode(settings).decode()


def _only(row: Mapping[str, Value], *names: str) -> dict[str, Value]:
    return {name: row[name] for name in names}


def _differs(old: Row | None, row: Mapping[str, Value]) -> bool:
    return old is None or old["gone"] == 1 or any(old[name] != row[name] for name in _SAID)


def _moves(case: _Case) -> bool:
    return case.old is not None and case.old["canonical"] != case.entry.address.canonical


def _former(case: _Case) -> dict[str, Value] | None:
    """An entry that went over to another source leaves the one it had to whoever else names it."""
    if case.old is None or case.old["source"] == case.row["source"]:
        return None
    name = f"{case.entry.name} was {case.old['canonical']}"
    return {**{key: case.old[key] for key in case.row}, "name": name, "gone": 1}
