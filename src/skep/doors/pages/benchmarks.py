"""Benchmarks as pages: how they stand, their series with steps; and pictures by URL, for READMEs."""

from typing import Annotated, NamedTuple

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect
from markupsafe import Markup

from skep.benchmarks.plots import compare_plot, distribution_plot, series_plot
from skep.benchmarks.steps import noise
from skep.core import Core
from skep.doors.http.benchmarks import curves
from skep.doors.http.given import Asked, Asker, PageToken, TheCore
from skep.doors.pages.render import page as render
from skep.errors import NotFound
from skep.model.benchmark import BenchmarkState, Step
from skep.model.caller import Caller
from skep.model.result import Result, Series

_PER_PAGE, _PICTURES = 50, 20
#: points of one picture
_MOST_POINTS = 500
Text = Annotated[str, QueryParameter(max_length=1000)]
Group = Annotated[str | None, QueryParameter(max_length=1000)]
#: a picture can neither run a program nor load anything, and other sites may show it
_PICTURE = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
    "cache-control": "private, max-age=60",
}
_VERBS: dict[str, BenchmarkState] = {"pause": "paused", "resume": "running"}


class Curve(NamedTuple):
    """A series with all that is drawn of it."""

    series: Series
    points: list[Result]
    failures: list[Result]
    steps: list[Step]
    link: str

    def drawn(self, kind: str, commit: str = "") -> str:
        if kind == "distribution":
            return distribution_plot(self.series, self.points)
        if kind == "series":
            return series_plot(self.series, self.points, self.steps, self.failures, self.link)
        point = next((one for one in reversed(self.points) if one.commit.startswith(commit)), None)
        if kind != "compare" or point is None:
            raise NotFound(f"there is no picture {kind}.svg of this", hint="series.svg, compare.svg, distribution.svg")
        return compare_plot(self.series, point)


async def _curve(core: Core, caller: Caller, series: Series, all: list[Series], steps: list[Step]) -> Curve:
    points = await core.results.points(caller, series, _MOST_POINTS)
    beside = [one for one in all if not one.metric and (one.ref, one.machine) == (series.ref, series.machine)]
    failed = [point for one in beside for point in await core.results.points(caller, one, _MOST_POINTS)]
    since = points[0].made_at if points else 0.0
    own = [one for one in steps if all_same(one, series)]
    return Curve(
        series,
        [point for point in points if point.kind == "measure"],
        [point for point in failed if point.made_at >= since],
        own,
        f"/sources/{series.source}/commit/",
    )


def all_same(step: Step, series: Series) -> bool:
    return all(getattr(step, name) == getattr(series, name) for name in ("ref", "group", "metric", "machine"))


@get("/benchmarks", include_in_schema=False)
async def benchmarks_page(request: Asked, core: TheCore, caller: Asker, page: PageToken = "") -> Response[bytes]:
    found = await core.benchmarks.list(caller, page=page, limit=_PER_PAGE)
    names = {one.source: (await core.sources.show(caller, one.source)).name for one in found.items if one.source}
    return render(request, "benchmarks.html", found=found, names=names, page=page)


@get("/benchmarks/{name:str}", include_in_schema=False)
async def benchmark_page(request: Asked, core: TheCore, caller: Asker, name: FromPath[str]) -> Response[bytes]:
    benchmark, steps = await core.benchmarks.show(caller, name), await core.benchmarks.steps(caller, name)
    known = await curves(core, caller, name)
    shown = [await _curve(core, caller, one, known, steps) for one in known if one.metric][:_PICTURES]
    pictures = [(one, Markup(one.drawn("series")), noise([p.value for p in one.points])) for one in shown]  # noqa: S704  # our own, escaped
    return render(request, "benchmark.html", one=benchmark, steps=steps, pictures=pictures)


@get("/benchmarks/{name:str}/{file:str}", include_in_schema=False)
async def benchmark_picture(
    core: TheCore,
    caller: Asker,
    name: FromPath[str],
    file: FromPath[str],
    metric: Text = "",
    group: Group = None,
    ref: Text = "",
    machine: Text = "",
    commit: Text = "",
) -> Response[bytes]:
    """The first series that fits what is asked for."""
    known = await curves(core, caller, name)
    wanted = {"metric": metric, "ref": ref, "machine": machine}
    fits = [
        one
        for one in known
        if one.metric
        and (group is None or one.group == group)
        and all(not value or getattr(one, field) == value for field, value in wanted.items())
    ]
    kind, _, suffix = file.rpartition(".")
    if not fits or suffix != "svg":
        raise NotFound("there is no such series", hint="its page shows those there are")
    curve = await _curve(core, caller, fits[0], known, await core.benchmarks.steps(caller, name))
    return Response(curve.drawn(kind, commit).encode(), media_type="image/svg+xml", headers=_PICTURE)


@post("/benchmarks/{name:str}/{verb:str}", include_in_schema=False)
async def switch_form(core: TheCore, caller: Asker, name: FromPath[str], verb: FromPath[str]) -> Redirect:
    if verb not in _VERBS:
        raise NotFound(f"a benchmark cannot {verb[:40]!r}")
    await core.benchmarks.switch(caller, name, _VERBS[verb])
    return Redirect(f"/benchmarks/{name}", status_code=303)


HANDLERS = [benchmarks_page, benchmark_page, benchmark_picture, switch_form]
