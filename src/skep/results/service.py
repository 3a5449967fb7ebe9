"""Results: what tasks measured, kept after the tasks themselves are forgotten."""

import hashlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from skep.base.answers import Page
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound, TooLarge
from skep.base.ids import result_id
from skep.results.api import KINDS, MACHINE, Aggregate, Draft, Result, ResultQuery, Series
from skep.results.fields import FIELDS, FROM, Order, checked, condition, field
from skep.sources.catalogue import seen
from skep.storage.database import Database, Row, Tx, Value, inserting, one_row
from skep.tasks.model import TaskSpec

# The tables of results. What a curve is made of is stored once for all its results, in `series`.

STEPS = [
    """
    CREATE TABLE series (
        id BIGINT PRIMARY KEY, benchmark TEXT NOT NULL, source TEXT NOT NULL, ref TEXT NOT NULL,
        group_name TEXT NOT NULL, metric TEXT NOT NULL, machine TEXT NOT NULL, unit TEXT
    );
    CREATE INDEX series_benchmark ON series (benchmark, metric);
    CREATE INDEX series_source ON series (source);
    CREATE TABLE result (
        id TEXT PRIMARY KEY, series BIGINT NOT NULL, task TEXT NOT NULL, attempt BIGINT NOT NULL,
        number BIGINT NOT NULL, context TEXT NOT NULL, kind TEXT NOT NULL, value DOUBLE PRECISION NOT NULL,
        samples TEXT NOT NULL, tags TEXT NOT NULL, commit_id TEXT NOT NULL, made_at DOUBLE PRECISION NOT NULL,
        at DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX result_series ON result (series, made_at, id);
    CREATE INDEX result_task ON result (task, attempt);
    CREATE INDEX result_context ON result (context);
    CREATE INDEX result_at ON result (at, id);
    CREATE TABLE result_tag (
        result TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (result, name)
    );
    CREATE INDEX result_tag_value ON result_tag (name, value)
    """
]

SERIES = inserting(
    "series",
    ("id", "benchmark", "source", "ref", "group_name", "metric", "machine", "unit"),
    "ON CONFLICT (id) DO UPDATE SET unit = excluded.unit WHERE series.unit IS NULL AND excluded.unit IS NOT NULL",
)
TAG = inserting("result_tag", ("result", "name", "value"), "ON CONFLICT (result, name) DO NOTHING")


def series_number(series: Series) -> int:
    """Made from the key, so that nobody has to look it up; the unit is no part of it."""
    key = msgspec.structs.astuple(series)[:-1]
    return int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=8).digest(), "big") >> 1


# How results are stored: what they are about comes from their task, and each curve keeps its unit.

#: series whose units are asked for by one statement
_AT_ONCE = 64
_spec = msgspec.json.Decoder(TaskSpec).decode


class About:
    """What a task says of all its results: where they stand on which curve."""

    def __init__(self, task: str, row: Row, machine: str, now: float) -> None:
        self.task = task
        self.attempt: int = row["attempt"]
        self._context: str = row["context"]
        self._now = now
        spec = _spec(row["spec"])
        of = spec.properties.get
        self._key = Series(
            benchmark=of("skep.benchmark", ""),
            source=of("skep.source", spec.source),
            ref=of("skep.ref", ""),
            machine=of(MACHINE, machine),
        )
        self._commit = of("skep.commit", "")
        self._made_at = _seconds(of("skep.made_at", ""), now)

    def series(self, draft: Draft) -> Series:
        unit = None if draft.kind == "failure" else draft.unit
        return msgspec.structs.replace(self._key, group=draft.group, metric=draft.metric, unit=unit)

    def row(self, draft: Draft, number: int) -> dict[str, Any]:
        return {
            "id": result_id(self.task, self.attempt, number),
            "series": series_number(self.series(draft)),
            "task": self.task,
            "attempt": self.attempt,
            "number": number,
            "context": self._context,
            "kind": draft.kind,
            "value": float(draft.value or 0.0),
            "samples": msgspec.json.encode(draft.values).decode(),
            "tags": msgspec.json.encode(draft.tags).decode(),
            "commit_id": self._commit,
            "made_at": self._made_at,
            "at": self._now,
        }


def _seconds(text: str, now: float) -> float:
    try:
        seconds = float(text) if text else now
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise BadInput(f"the property skep.made_at is {text[:80]!r}", hint="it is seconds since 1970")
    return seconds


async def store(tx: Tx, about: About, drafts: Sequence[Draft], first: int) -> int:
    """How many were not known before."""
    await _join(tx, {about.series(draft) for draft in drafts})
    known = await _known(tx, about.task, about.attempt, first)
    rows = [about.row(draft, first + n) for n, draft in enumerate(drafts) if first + n not in known]
    if rows:
        await tx.many(inserting("result", rows[0], "ON CONFLICT (id) DO NOTHING"), rows)
        await tx.many(TAG, [tag for row in rows for tag in _tags(row, drafts[row["number"] - first])])
    return len(rows)


async def find_task(tx: Tx, id: str, attempt: int | None, member: str, *, private: bool) -> Row:
    rows = await tx.rows(
        "SELECT attempt, context, worker, spec, (SELECT COALESCE(max(number) + 1, 0) FROM result "  # noqa: S608
        "WHERE result.task = task.id AND result.attempt = task.attempt) AS next FROM task WHERE id = :id "
        f"AND {seen('task.source')} FOR UPDATE",
        id=id,
        private=int(private),
    )
    row = one_row(rows, NotFound(f"there is no task {id!r}", hint="`skep task list` shows those there are"))
    # between two placements it is nobody's
    if attempt not in (None, row["attempt"]) or (member and row["worker"] not in (member, "")):
        raise Conflict(f"attempt {attempt} of task {id} is over", hint="another one may be running")
    return row


async def _known(tx: Tx, task: str, attempt: int, first: int) -> set[int]:
    """Numbers from `first` on that are stored. A retry measures anew: what the try before it measured makes room."""
    old = "task = :task AND attempt < :attempt"
    await tx.rows(
        f"DELETE FROM result_tag WHERE result IN (SELECT id FROM result WHERE {old})",  # noqa: S608
        task=task,
        attempt=attempt,
    )
    await tx.rows(f"DELETE FROM result WHERE {old}", task=task, attempt=attempt)  # noqa: S608
    rows = await tx.rows(
        "SELECT number FROM result WHERE task = :task AND attempt = :attempt AND number >= :first",
        task=task,
        attempt=attempt,
        first=first,
    )
    return {row["number"] for row in rows}


async def _join(tx: Tx, wanted: set[Series]) -> None:
    """The first result of a series gives it its unit; another unit on the same curve would be a lie."""
    # in one order, or two transactions wait for each other
    numbered = sorted(((series_number(series), series) for series in wanted), key=lambda pair: pair[0])
    units = await _units(tx, [number for number, _ in numbered])
    new = [(n, one) for n, one in numbered if n not in units or (units[n] is None and one.unit is not None)]
    await tx.many(SERIES, [{"id": n, "group_name": one.group, **msgspec.structs.asdict(one)} for n, one in new])
    units |= await _units(tx, [number for number, _ in new])
    for number, series in numbered:
        if series.unit is not None and series.unit != units[number]:
            name = " ".join(part for part in (series.benchmark, series.group, series.metric) if part)
            raise Conflict(
                f"{name!r} is measured in {units[number]!r}, and this result is in {series.unit!r}",
                hint="convert it, or call the metric otherwise",
            )


async def _units(tx: Tx, numbers: list[int]) -> dict[int, str | None]:
    units: dict[int, str | None] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        rows = await tx.rows("SELECT id, unit FROM series WHERE id IN (:some)", some=some)
        units |= {row["id"]: row["unit"] for row in rows}
    return units


def _tags(row: dict[str, Any], draft: Draft) -> list[dict[str, Value]]:
    return [{"result": row["id"], "name": name, "value": text} for name, text in draft.tags.items()]


MOST_AT_ONCE = 10_000
#: results of one attempt
MOST_OF_A_TASK = 1_000_000
_PAGE = 1000
_VISIBLE = seen("series.source")
_KEY = "benchmark, source, ref, group_name, metric, machine"


class Results:
    def __init__(self, db: Database, clock: Clock, kinds: Sequence[str] = ()) -> None:
        self._db = db
        self._clock = clock
        self._kinds = (*KINDS, *kinds)

    async def start(self) -> None:
        await self._db.migrate("results", STEPS)

    async def record(
        self,
        caller: Caller,
        task: str,
        attempt: int | None,
        drafts: Sequence[Draft],
        *,
        first: int | None = None,
        member: str = "",
        machine: str = "",
    ) -> int:
        """Durable on return: how many were not known before. `first` is the number of the first of them, by which a
        repeat is recognised. A worker (`member`) records only for what it runs."""
        caller.need("write")
        if len(drafts) > MOST_AT_ONCE:
            raise TooLarge(f"{len(drafts):,} results at once; at most {MOST_AT_ONCE:,} are allowed")
        ready = [checked(draft, self._kinds) for draft in drafts]
        now = self._clock.now()

        async def work(tx: Tx) -> int:
            row = await find_task(tx, task, attempt, member, private=caller.sees("private"))
            number = row["next"] if first is None else first
            if not 0 <= number <= MOST_OF_A_TASK - len(ready):
                raise TooLarge(f"task {task} has more than {MOST_OF_A_TASK:,} results")
            return await store(tx, About(task, row, machine, now), ready, number)

        return await self._db.write(work)

    async def show(self, caller: Caller, id: str) -> Result:
        found = await self.query(caller, ResultQuery((f"id={id}",), limit=1))
        if not found.items:
            raise NotFound(f"there is no result {id!r}", hint="`skep result list` shows those there are")
        return found.items[0]

    async def query(self, caller: Caller, query: ResultQuery) -> Page[Result]:
        found = await self.select(caller, msgspec.structs.replace(query, fields=()))
        return Page([Result(**row) for row in found.items], found.next_page)

    async def select(self, caller: Caller, query: ResultQuery) -> Page[dict[str, Any]]:
        """The chosen fields of those that match."""
        caller.need("read")
        order = Order.of(query.order)
        fields = {name: _projected(name) for name in query.fields or FIELDS}
        holds, params = condition(query.where)
        after, place = order.after(query.page)
        columns = ", ".join(f"{sql} AS f_{name}" for name, (sql, _, _) in fields.items())
        rows = await self._db.read(
            f"SELECT {columns}, {order.sql} AS place, result.id AS own {FROM} WHERE {holds} AND {after} "
            f"AND {_VISIBLE} {order.by} LIMIT :limit",
            **params,
            **place,
            private=int(caller.sees("private")),
            limit=query.limit + 1,
        )
        items = [
            {name: decode(row[f"f_{name}"]) for name, (_, _, decode) in fields.items()} for row in rows[: query.limit]
        ]
        more = len(rows) > query.limit
        last = rows[query.limit - 1] if more else {}
        return Page(items, Order.token(last["place"], last["own"]) if more else "")

    async def every(self, caller: Caller, query: ResultQuery) -> AsyncIterator[list[dict[str, Any]]]:
        """All that match, in pieces."""
        page = None
        while page != "":
            found = await self.select(caller, msgspec.structs.replace(query, page=page or "", limit=_PAGE))
            yield found.items
            page = found.next_page

    async def aggregate(
        self, caller: Caller, where: Sequence[str] = (), by: Sequence[str] = (), limit: int = 1000
    ) -> list[Aggregate]:
        """Each metric and unit by itself: a mean of seconds and bytes is nothing. Failures do not count."""
        caller.need("read")
        holds, params = condition(where)
        groups = {"metric": field("metric"), "unit": field("unit")} | {name: field(name) for name in by}
        columns = ", ".join(f"{one.sql} AS g_{name}" for name, one in groups.items())
        names = ", ".join(f"g_{name}" for name in groups)
        rows = await self._db.read(
            f"WITH picked AS (SELECT {columns}, result.value AS value {FROM} "  # noqa: S608
            f"WHERE result.kind <> 'failure' AND {holds} AND {_VISIBLE}), "
            f"ranked AS (SELECT picked.*, row_number() OVER (PARTITION BY {names} ORDER BY value) AS rank, "
            f"count(*) OVER (PARTITION BY {names}) AS n FROM picked) "
            f"SELECT {names}, max(n) AS count, min(value) AS min, max(value) AS max, avg(value) AS mean, "
            "avg(CASE WHEN rank = (n + 1) / 2 OR rank = (n + 2) / 2 THEN value END) AS median, "
            "max(CASE WHEN rank = (95 * n + 99) / 100 THEN value END) AS p95 "
            f"FROM ranked GROUP BY {names} ORDER BY {names} LIMIT :limit",
            **params,
            private=int(caller.sees("private")),
            limit=limit,
        )
        return [
            Aggregate(
                {name: row[f"g_{name}"] for name in by},
                row["g_metric"],
                row["g_unit"],
                *(row[name] for name in ("count", "min", "max", "mean", "median", "p95")),
            )
            for row in rows
        ]

    async def series(self, caller: Caller, where: Sequence[str] = (), limit: int = 1000) -> list[Series]:
        """Curves there are; filters are those of results, over the fields that a series has."""
        caller.need("read")
        holds, params = condition(where)
        if "result" in holds:
            raise BadInput("a series has no such field", hint=f"there are: {', '.join(Series.__struct_fields__)}")
        rows = await self._db.read(
            f"SELECT {_KEY}, unit FROM series WHERE {holds} AND {_VISIBLE} ORDER BY {_KEY} LIMIT :limit",  # noqa: S608
            **params,
            private=int(caller.sees("private")),
            limit=limit,
        )
        return [Series(*row.values()) for row in rows]

    async def points(self, caller: Caller, series: Series, limit: int = 10_000) -> list[Result]:
        """The newest `limit` results of a curve, oldest commit first."""
        caller.need("read")
        columns = ", ".join(f"{one.sql} AS f_{name}" for name, one in FIELDS.items())
        rows = await self._db.read(
            f"SELECT {columns} {FROM} WHERE result.series = :series AND {_VISIBLE} "
            "ORDER BY result.made_at DESC, result.id DESC LIMIT :limit",
            series=series_number(series),
            private=int(caller.sees("private")),
            limit=limit,
        )
        decoders = [one.decode for one in FIELDS.values()]
        return [
            Result(*(decode(value) for decode, value in zip(decoders, row.values(), strict=True)))
            for row in reversed(rows)
        ]


def _projected(name: str) -> Any:
    if name not in FIELDS:
        raise BadInput(f"results have no field {name[:80]!r}", hint=f"there are: {', '.join(FIELDS)}")
    return FIELDS[name]
