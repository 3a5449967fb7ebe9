"""Benchmarks as pages: how they stand, their series with steps; and pictures by URL, for READMEs."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect
from markupsafe import Markup

from skep.base.errors import NotFound
from skep.benchmarks.api import BenchmarkState
from skep.benchmarks.evaluations import MIMES, evaluate
from skep.benchmarks.step_detection import noise
from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.web.render import page as render

_PER_PAGE, _PICTURES = 50, 20
Text = Annotated[str | None, QueryParameter(max_length=1000)]
#: files of tasks can neither run a program nor load anything, wherever they are shown
SANDBOX = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    "cross-origin-resource-policy": "cross-origin",
    "cache-control": "private, max-age=60",
}
_VERBS: dict[str, BenchmarkState] = {"pause": "paused", "resume": "running"}


@get("/benchmarks")
async def benchmarks_page(request: Asked, core: TheCore, caller: Asker, page: PageToken = "") -> Response[bytes]:
    found = await core.benchmarks.list(caller, page=page, limit=_PER_PAGE)
    names = {one.source: (await core.sources.show(caller, one.source)).name for one in found.items if one.source}
    return render(request, "benchmarks.html", found=found, names=names, page=page)


@get("/benchmarks/{name:str}")
async def benchmark_page(request: Asked, core: TheCore, caller: Asker, name: FromPath[str]) -> Response[bytes]:
    benchmark, steps = await core.benchmarks.show(caller, name), await core.benchmarks.steps(caller, name)
    link = f"/sources/{benchmark.source}/commit/"
    pictures = [
        (one, Markup(evaluate("series", one, link=link)[1].decode()), noise([point.value for point in one.points]))  # noqa: S704  # our own, escaped
        for one in await core.evaluations.curves.find(caller, name, {}, _PICTURES)
    ]
    files = await core.evaluations.list(caller, name)
    return render(request, "benchmark.html", one=benchmark, steps=steps, pictures=pictures, files=files)


@get("/benchmarks/{name:str}/{file:str}")
async def benchmark_picture(
    core: TheCore,
    caller: Asker,
    name: FromPath[str],
    file: FromPath[str],
    metric: Text = None,
    group: Text = None,
    ref: Text = None,
    machine: Text = None,
    commit: Text = None,
) -> Response[bytes]:
    """The first series that fits what is asked for."""
    wanted = {"metric": metric, "group": group, "ref": ref, "machine": machine}
    plot, _, suffix = file.rpartition(".")
    curves = await core.evaluations.curves.find(caller, name, wanted)
    if not curves:
        raise NotFound("nothing was measured yet")
    mime, body = evaluate(plot, curves[0], commit=commit or "")
    if MIMES[mime] != suffix:
        raise NotFound(f"there is no {file[:80]!r} of a benchmark")
    return Response(body, media_type=mime, headers=SANDBOX)


@get("/evaluations/{id:str}")
async def evaluation_file(core: TheCore, caller: Asker, id: FromPath[str]) -> Response[bytes]:
    one, body = await core.evaluations.open(caller, id)
    return Response(body, media_type=one.mime, headers=SANDBOX)


@post("/benchmarks/{name:str}/{verb:str}")
async def switch_form(core: TheCore, caller: Asker, name: FromPath[str], verb: FromPath[str]) -> Redirect:
    if verb not in _VERBS:
        raise NotFound(f"a benchmark cannot {verb[:40]!r}")
    await core.benchmarks.switch(caller, name, _VERBS[verb])
    return Redirect(f"/benchmarks/{name}", status_code=303)
