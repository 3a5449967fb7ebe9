"""Steps of a benchmark's series: found in its results, followed while they become narrower, told once."""

import asyncio
import base64
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import NotFound, SkepError
from skep.benchmarks.api import Step
from skep.benchmarks.service import Benchmarks, channel, spec_of, step_of
from skep.benchmarks.step_detection import Found, between, divided, find_steps
from skep.net.connection import NetworkError
from skep.net.guard import Guard
from skep.results.api import Result, ResultQuery, Series
from skep.results.service import Results
from skep.sources.git.http import Http
from skep.storage.database import Database, Row, Tx, Value, insert, update
from skep.topics.api import Draft
from skep.topics.service import STEPS, Topics

# A series of a benchmark with all that is drawn of it: points, failures, steps.

#: points of one picture, the newest
MOST_POINTS = 500
_OF_A_STEP = ("ref", "group", "metric", "machine")


class Curve(msgspec.Struct, frozen=True):
    series: Series
    points: list[Result]
    steps: list[Step]
    #: of commits that could not be measured
    failures: list[Result]


class Curves:
    def __init__(self, results: Results, benchmarks: Benchmarks) -> None:
        self._results = results
        self._benchmarks = benchmarks

    async def series(self, caller: Caller, name: str) -> list[Series]:
        return [one for one in await self._all(caller, name) if one.metric]

    async def find(self, caller: Caller, name: str, wanted: Mapping[str, str | None], most: int = 1) -> list[Curve]:
        """The first that fit; what is None fits all."""
        known, steps = await self._all(caller, name), await self._benchmarks.steps(caller, name)
        given = {field: value for field, value in wanted.items() if value is not None}
        fits = [one for one in known if one.metric and all(getattr(one, key) == given[key] for key in given)]
        if not fits and given:
            raise NotFound("there is no such series", hint="the page of the benchmark shows those there are")
        return [await self._curve(caller, one, known, steps) for one in fits[:most]]

    async def _all(self, caller: Caller, name: str) -> list[Series]:
        """With those of failures, which have no metric."""
        benchmark = await self._benchmarks.show(caller, name)
        return await self._results.series(caller, (f"benchmark={name}", f"source={benchmark.source}"))

    async def _curve(self, caller: Caller, series: Series, known: Sequence[Series], steps: Sequence[Step]) -> Curve:
        points = await self._results.points(caller, series, MOST_POINTS)
        beside = [one for one in known if not one.metric and (one.ref, one.machine) == (series.ref, series.machine)]
        failed = [point for one in beside for point in await self._results.points(caller, one, MOST_POINTS)]
        since = points[0].made_at if len(points) == MOST_POINTS else 0.0
        return Curve(
            series,
            [point for point in points if point.kind == "measure"],
            [one for one in steps if all(getattr(one, name) == getattr(series, name) for name in _OF_A_STEP)],
            [point for point in failed if point.made_at >= since],
        )


#: newest points of a series that are looked at
FINDING_MOST_POINTS = 400
#: a step found again so many points from where it may be is the same one
_NEAR = 3
_MOST_RESULTS = 1000
#: runs that took turns with the commit before say that it is this one
_SURE = 0.05
#: of a change that runs which took turns have to show
_PART = 1 / 3


class Finding:
    def __init__(self, db: Database, clock: Clock, topics: Topics, results: Results) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._results = results

    async def look(self, row: Row) -> None:
        """At all series of a benchmark. Asked again, it finds the same."""
        spec = spec_of(bytes(row["spec"]))
        for series, points in await self._series(row):
            values = [point.value for point in points]
            found = await asyncio.to_thread(find_steps, values, least=spec.least)
            steps = [(self._step(row["id"], series, points, one), one) for one in found if supported(points, one)]
            at_once = not spec.bisect or bool(spec.code)
            store = partial(self._store, row=row, series=series, steps=steps, points=points, at_once=at_once)
            await self._db.write(store)

    def _step(self, benchmark: str, series: Series, points: Sequence[Result], found: Found) -> Step:
        at = locate(points, found)
        point = points[at]
        previous = next((one for one in reversed(points[:at]) if one.commit != point.commit), point)
        return Step(
            id=id_of(benchmark, series, point.commit),
            **{**msgspec.structs.asdict(series), "unit": series.unit or ""},
            commit=point.commit,
            previous=previous.commit,
            made_at=point.made_at,
            author=point.tags.get("author", ""),
            subject=point.tags.get("subject", ""),
            **{name: getattr(found, name) for name in ("before", "after", "change", "p")},
            state="open",
            found_at=self._clock.now(),
        )

    async def _store(
        self,
        tx: Tx,
        row: Row,
        series: Series,
        steps: Sequence[tuple[Step, Found]],
        points: Sequence[Result],
        at_once: bool,
    ) -> None:
        """New ones open, or are told; open ones move, and go when nothing is found there any more."""
        places = {point.commit: at for at, point in enumerate(points)}
        known = {
            one["id"]: step_of(one)
            for one in await tx.rows(
                "SELECT id, state, body FROM step WHERE benchmark = :id AND series = :series FOR UPDATE",
                id=row["id"],
                series=key_of(series),
            )
        }
        kept: set[str] = set()
        for step, found in steps:
            same = [one for one in known.values() if one.id not in kept and _same(one, found, places)]
            if same:
                nearest = min(same, key=lambda one: abs(places[one.commit] - found.at))
                kept.add(nearest.id)
                if nearest.state == "open":
                    await _move(tx, nearest, step)
                continue
            await self._insert(tx, row, key_of(series), step)
            kept.add(step.id)
            if at_once:
                await self._tell(tx, row, step.id)
        for id, old in known.items():
            if id in kept or old.state != "open":
                continue
            if old.asked and old.previous in places and old.commit in places:
                inside = points[places[old.previous] : places[old.commit] + 1]
                await _move(tx, old, self._step(row["id"], series, inside, divided([one.value for one in inside])))
            else:
                await tx.rows("DELETE FROM step WHERE id = :id", id=id)
        tx.ring(channel(row["id"]))

    async def _insert(self, tx: Tx, row: Row, series: str, step: Step) -> None:
        new: dict[str, Value] = {"state": "open", "webhook": "", "tries": 0, "next_try": 0}
        new |= {"id": step.id, "made_at": step.made_at, "body": msgspec.json.encode(step)}
        await insert(tx, "step", "ON CONFLICT (id) DO NOTHING", benchmark=row["id"], series=series, **new)

    async def suspect(self, row: Row, ref: str, old: str, new: str) -> str:
        """Somebody says that there is a step between two commits. Where measurements of both differ, one opens; else
        the answer says why none does."""
        why = f"{old[:40]} or {new[:40]} was not measured"
        for series, points in await self._series(row):
            left, right = ([one for one in points if one.commit == end] for end in (old, new))
            if series.ref != ref or not left or not right:
                continue
            why = why and f"no difference between {old[:12]} and {new[:12]}"
            found = between(left[-1].values, right[-1].values)
            if found is None or abs(found.change) < spec_of(bytes(row["spec"])).least:
                continue
            step = self._step(row["id"], series, [left[-1], right[-1]], found)
            asked = msgspec.structs.replace(step, asked=True)
            await self._db.write(partial(self._insert, row=row, series=key_of(series), step=asked))
            why = ""
        return why

    async def _series(self, row: Row) -> list[tuple[Series, list[Result]]]:
        """Each with what was measured, oldest commit first."""
        found = []
        for series in await self._results.series(SYSTEM, (f"benchmark={row['name']}", f"source={row['source']}")):
            points = await self._results.points(SYSTEM, series, FINDING_MOST_POINTS)
            found.append((series, [point for point in points if point.kind == "measure" and point.value > 0]))
        return found

    async def results(self, row: Row, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """For a generator, of its own benchmark only."""
        where = (*map(str, asked.get("where", ())), f"benchmark={row['name']}", f"source={row['source']}")
        query = ResultQuery(where, limit=min(_MOST_RESULTS, int(asked.get("limit", _MOST_RESULTS))))
        return (await self._results.select(SYSTEM, query)).items

    async def open(self, benchmark: str) -> list[Step]:
        rows = await self._db.read(
            "SELECT body, state FROM step WHERE benchmark = :id AND state = 'open' ORDER BY made_at, id", id=benchmark
        )
        return [step_of(row) for row in rows]

    async def tell(self, row: Row, ids: Sequence[str]) -> None:
        """Open steps that will not become narrower."""
        if ids:
            await self._db.write(lambda tx: self._tell(tx, row, *ids))

    async def _tell(self, tx: Tx, row: Row, *ids: str) -> None:
        """Once: the row, the message and the debt to a webhook are one transaction."""
        now, webhook = self._clock.now(), spec_of(bytes(row["spec"])).webhook
        for id in ids:
            told = await tx.rows(
                "UPDATE step SET state = 'told', webhook = :webhook, next_try = :now WHERE id = :id "
                "AND benchmark = :benchmark AND state = 'open' RETURNING body, state",
                id=id,
                benchmark=row["id"],
                webhook=webhook,
                now=now,
            )
            for one in told:
                body = msgspec.json.encode(step_of(one))
                await self._topics.tell(tx, STEPS, [Draft(body, id, row["source"])], now)
        tx.ring(STEPS)


async def _move(tx: Tx, old: Step, new: Step) -> None:
    moved = msgspec.structs.replace(new, id=old.id, found_at=old.found_at, asked=old.asked)
    if old.asked:  # how large it is was seen at its ends
        moved = msgspec.structs.replace(moved, before=old.before, after=old.after, change=old.change, p=old.p)
    await update(tx, "step", "id", id=old.id, body=msgspec.json.encode(moved), made_at=moved.made_at)


def supported(points: Sequence[Result], found: Found) -> bool:
    """Of commits that may be it, all of which took turns with the one before, one has to show a part of the change."""
    places = range(max(1, found.low), found.high + 1)
    part = math.log1p(found.change) * _PART
    return any(
        points[at].tags.get("base") != points[at - 1].commit or math.log(_ratio(points[at])) / part >= 1.0
        for at in places
    )


def locate(points: Sequence[Result], found: Found) -> int:
    """Where the series leaves a doubt, runs that took turns with the commit before may settle it."""
    sure = [
        at
        for at in range(max(1, found.low), found.high + 1)
        if float(points[at].tags.get("p", "1")) <= _SURE and (_ratio(points[at]) > 1) == (found.change > 0)
    ]
    return max(sure, key=lambda at: _ratio(points[at]) ** (1 if found.change > 0 else -1), default=found.at)


def _ratio(point: Result) -> float:
    return float(point.tags.get("ratio", "1"))


def _same(old: Step, new: Found, places: dict[str, int]) -> bool:
    """In the same direction, and near all places where the new one may be: with more points a step moves, within its
    doubt. While it is open commits are measured inside it, so that it counts from end to end."""
    if (old.change > 0) != (new.change > 0) or old.commit not in places:
        return False
    low = min(places.get(old.previous, places[old.commit]), places[old.commit])
    return low - _NEAR <= new.high and new.low <= places[old.commit] + _NEAR


def key_of(series: Series) -> str:
    return "\n".join((series.ref, series.group, series.metric, series.machine))


def id_of(benchmark: str, series: Series, commit: str) -> str:
    digest = hashlib.blake2b(f"{benchmark}\n{key_of(series)}\n{commit}".encode(), digest_size=20).digest()
    return "stp_" + base64.b32encode(digest).decode().lower()


# Steps that are told are POSTed to the webhook of their benchmark, until it takes them or was asked often enough.

log = logging.getLogger(__name__)

_MOST_TRIES = 8
_FIRST_PAUSE = 15.0
_NAP = 60.0
_AT_ONCE = 20


class Notices:
    def __init__(self, db: Database, clock: Clock, http: Http, guard: Guard) -> None:
        self._db = db
        self._clock = clock
        self._http = http
        self._guard = guard

    async def follow(self) -> None:
        """Until cancelled."""
        async with self._db.listen(STEPS) as bell:
            while True:
                await self.once()
                rows = await self._db.read(
                    "SELECT min(next_try) AS at FROM step WHERE webhook <> '' AND state = 'told'"
                )
                due = rows[0]["at"]
                await bell.wait(_NAP if due is None else min(_NAP, max(0.0, due - self._clock.now())))

    async def once(self) -> None:
        rows = await self._db.read(
            "SELECT * FROM step WHERE webhook <> '' AND state = 'told' AND next_try <= :now "
            "ORDER BY next_try LIMIT :most",
            now=self._clock.now(),
            most=_AT_ONCE,
        )
        for row in rows:
            wrong = await self._post(row)
            tries = row["tries"] + 1
            done = not wrong or tries >= _MOST_TRIES
            if wrong:
                log.warning(
                    "a webhook was not told of a step", extra={"step": row["id"], "reason": wrong, "tries": tries}
                )
            await self._db.write(partial(self._note, row=row, tries=tries, done=done))

    async def _note(self, tx: Tx, row: Row, tries: int, done: bool) -> None:
        webhook, again = "" if done else row["webhook"], self._clock.now() + _FIRST_PAUSE * 2.0**tries
        await update(tx, "step", "id", id=row["id"], webhook=webhook, tries=tries, next_try=again)

    async def _post(self, row: Row) -> str:
        """Empty, or what went wrong. Redirects are not followed: they could lead where the guard has not looked."""
        url, body = str(row["webhook"]), msgspec.json.encode(step_of(row))
        try:
            parts = self._guard.check_url(url.partition("?")[0])
            reply = await self._http.ask(url, ["Content-Type: application/json"], body, await self._guard.pins(parts))
        except (SkepError, NetworkError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__
        return "" if 200 <= reply.status < 300 else f"it answered with status {reply.status}"
