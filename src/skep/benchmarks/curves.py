"""A series of a benchmark with all that is drawn of it: points, failures, steps."""

from collections.abc import Mapping, Sequence

import msgspec

from skep.benchmarks.service import Benchmarks
from skep.errors import NotFound
from skep.model.benchmark import Step
from skep.model.caller import Caller
from skep.model.result import Result, Series
from skep.results.service import Results

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
