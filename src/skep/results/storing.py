"""How results are stored: what they are about comes from their task, and each curve keeps its unit."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from skep.engines.db.base import Row, Tx, Value, inserting, one_row
from skep.errors import BadInput, Conflict, NotFound
from skep.model.ids import result_id
from skep.model.result import MACHINE, Draft, Series
from skep.model.task import TaskSpec
from skep.results.tables import SERIES, TAG, series_number
from skep.sources.tables import seen

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
