"""Results: what tasks measured, kept after the tasks themselves are forgotten."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.errors import BadInput, NotFound, TooLarge
from skep.model.answers import Page
from skep.model.caller import Caller
from skep.model.result import KINDS, Aggregate, Draft, Result, ResultQuery, Series
from skep.results.drafts import checked
from skep.results.fields import FIELDS, FROM, Order, condition, field
from skep.results.storing import About, find_task, store
from skep.results.tables import STEPS, series_number
from skep.sources.tables import seen

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
