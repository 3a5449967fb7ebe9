"""Evaluations: files that tasks made of results, with a MIME type, to be looked at. A task has one of each name."""

import base64
import binascii
import csv
import io
from typing import Any

import msgspec

from skep.access.audit import note
from skep.benchmarks.curves import Curve, Curves
from skep.benchmarks.plots import compare_plot, distribution_plot, series_plot
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx, insert, one_row
from skep.errors import BadInput, Conflict, NotFound, TooLarge
from skep.model.benchmark import Evaluation
from skep.model.caller import SYSTEM, Caller
from skep.model.ids import new_id
from skep.model.task import Call
from skep.sources.tables import seen
from skep.tasks.tables import ACTIVE_SQL, spec_of

LARGEST = 700_000
_KEPT = 1_000
_SVG = "image/svg+xml"
#: what a browser may be shown, and how it ends
MIMES = {
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "text/html": "html",
    "text/csv": "csv",
    "text/plain": "txt",
    "application/json": "json",
}
_WORDS = ("author", "subject")
_COLUMNS = "id, task, benchmark, source, name, mime, size, at"
_VISIBLE = seen("evaluation.source")


class Evaluations:
    def __init__(self, db: Database, clock: Clock, curves: Curves) -> None:
        self._db = db
        self._clock = clock
        self.curves = curves

    async def answer(self, member: str, call: Call) -> Any:
        """What a running task asks."""
        if call.verb == "evaluation.curve":
            wanted = {name: call.value.get(name) for name in ("metric", "group", "ref", "machine")}
            return msgspec.to_builtins((await self.curves.find(SYSTEM, call.name, wanted))[:1])
        return {"id": await self._put(member, call)}

    async def _put(self, member: str, call: Call) -> str:
        """A repeat takes the place of what the task made before."""
        mime, body = _file(call)
        now = self._clock.now()

        async def work(tx: Tx) -> str:
            rows = await tx.rows(
                f"SELECT spec FROM task WHERE id = :id AND attempt = :attempt AND worker = :member AND {ACTIVE_SQL}",  # noqa: S608
                id=call.task,
                attempt=call.attempt,
                member=member,
            )
            spec = spec_of(one_row(rows, Conflict(f"attempt {call.attempt} of task {call.task} is over")))
            benchmark = str(spec.arguments.get("benchmark") or spec.properties.get("skep.benchmark", ""))
            about = await tx.rows("SELECT source FROM benchmark WHERE name = :name", name=benchmark)
            source = about[0]["source"] if about else spec.properties.get("skep.source", spec.source)
            made = await insert(
                tx,
                "evaluation",
                "ON CONFLICT (task, name) DO UPDATE SET mime = excluded.mime, size = excluded.size, "
                "at = excluded.at, body = excluded.body RETURNING id",
                id=new_id("evl", now),
                task=call.task,
                benchmark=benchmark,
                source=source,
                name=call.name,
                mime=mime,
                size=len(body),
                at=now,
                body=body,
            )
            await tx.rows(
                "DELETE FROM evaluation WHERE id <= (SELECT id FROM evaluation ORDER BY id DESC LIMIT 1 OFFSET :kept)",
                kept=_KEPT,
            )
            return str(made[0]["id"])

        return await self._db.write(work)

    async def open(self, caller: Caller, id: str) -> tuple[Evaluation, bytes]:
        caller.need("read")
        rows = await self._rows(caller, f"{_COLUMNS}, body", "id = :wanted", id, 1)
        row = one_row(rows, NotFound(f"there is no evaluation {id[:80]!r}"))
        return _evaluation(row), bytes(row["body"])

    async def remove(self, caller: Caller, id: str) -> None:
        caller.need("write")
        await self.open(caller, id)

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM evaluation WHERE id = :id", id=id)
            await note(tx, self._clock.now(), caller, "evaluation.remove", id)

        await self._db.write(work)

    async def _rows(self, caller: Caller, columns: str, holds: str, wanted: str, limit: int) -> list[Row]:
        return await self._db.read(
            f"SELECT {columns} FROM evaluation WHERE {holds} AND {_VISIBLE} ORDER BY id DESC LIMIT :limit",  # noqa: S608
            wanted=wanted,
            private=int(caller.sees("private")),
            limit=limit,
        )

    async def list(self, caller: Caller, benchmark: str = "", limit: int = 100) -> list[Evaluation]:
        """The newest first."""
        caller.need("read")
        rows = await self._rows(caller, _COLUMNS, "(:wanted = '' OR benchmark = :wanted)", benchmark, limit)
        return [_evaluation(row) for row in rows]


def _evaluation(row: Row) -> Evaluation:
    return Evaluation(*(row[name] for name in _COLUMNS.split(", ")))


def _file(call: Call) -> tuple[str, bytes]:
    given = call.value if isinstance(call.value, dict) else {}
    mime = str(given.get("mime", ""))
    if mime not in MIMES:
        raise BadInput(f"{mime[:80]!r} is not shown here", hint=f"there are: {', '.join(MIMES)}")
    try:
        body = base64.b64decode(str(given.get("body", "")), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput('the body should be {"mime": "image/svg+xml", "body": BASE64}') from None
    if len(body) > LARGEST:
        raise TooLarge(f"an evaluation may have {LARGEST:,} bytes, not {len(body):,}", hint="draw fewer points")
    return mime, body


def evaluate(plot: str, curve: Curve, *, commit: str = "", link: str = "") -> tuple[str, bytes]:
    """The built-in ones: MIME type and file. Pure."""
    series, points = curve.series, curve.points
    match plot:
        case "series":
            return _SVG, series_plot(series, points, curve.steps, curve.failures, link).encode()
        case "distribution":
            return _SVG, distribution_plot(series, points).encode()
        case "compare":
            point = next((one for one in reversed(points) if one.commit.startswith(commit)), None)
            if point is None:
                raise NotFound(f"commit {commit[:40]!r} was not measured")
            return _SVG, compare_plot(series, point).encode()
        case "table":
            out = io.StringIO()
            rows = csv.writer(out)
            rows.writerow(("commit", "made_at", "value", "unit", *_WORDS))
            for one in points:
                # a table program must not take what people wrote for a formula
                words = (f"'{text}" if text[:1] in "=+-@\t" else text for text in map(one.tags.get, _WORDS) if text)
                rows.writerow((one.commit, one.made_at, one.value, one.unit, *words))
            return "text/csv", out.getvalue().encode()
        case _:
            raise BadInput(f"{plot[:40]!r} is no evaluator", hint="series, compare, distribution or table")
