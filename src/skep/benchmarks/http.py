"""Benchmarks: add, list, show, pause, resume, remove; what they found, and pictures of it."""

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.base.answers import Page
from skep.benchmarks.api import Benchmark, BenchmarkSpec, Evaluation, Step, Want
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore
from skep.results.api import Series

TAG = "benchmarks"
OfBenchmark = Annotated[str, QueryParameter(description="only those of this one", max_length=100)]


class Steps(msgspec.Struct, frozen=True):
    items: list[Step]


class Evaluations(msgspec.Struct, frozen=True):
    items: list[Evaluation]


class Curves(msgspec.Struct, frozen=True):
    items: list[Series]


@post("/benchmarks", summary="Add a benchmark; it begins at once")
async def add_benchmark(core: TheCore, caller: Asker, data: JSONBody[BenchmarkSpec]) -> Benchmark:
    return await core.benchmarks.add(caller, data)


@get("/benchmarks", summary="List benchmarks")
async def list_benchmarks(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[Benchmark]:
    return await core.benchmarks.list(caller, page=page, limit=limit)


@get("/benchmarks/{name:str}", summary="Show a benchmark")
async def show_benchmark(core: TheCore, caller: Asker, name: FromPath[str]) -> Benchmark:
    return await core.benchmarks.show(caller, name)


@delete("/benchmarks/{name:str}", summary="Remove a benchmark; what it measured stays")
async def remove_benchmark(core: TheCore, caller: Asker, name: FromPath[str]) -> None:
    await core.benchmarks.remove(caller, name)


@post("/benchmarks/{name:str}/pause", summary="What is being measured ends; nothing new begins")
async def pause_benchmark(core: TheCore, caller: Asker, name: FromPath[str]) -> Benchmark:
    return await core.benchmarks.switch(caller, name, "paused")


@post("/benchmarks/{name:str}/resume", summary="Go on, also after it failed or finished")
async def resume_benchmark(core: TheCore, caller: Asker, name: FromPath[str]) -> Benchmark:
    return await core.benchmarks.switch(caller, name, "running")


@post("/benchmarks/{name:str}/wants", summary="Measure a commit or a range, or bisect one")
async def want_of_benchmark(core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[Want]) -> Benchmark:
    return await core.benchmarks.want(caller, name, data)


@get("/benchmarks/{name:str}/steps", summary="Commits that moved one of its series, the newest first")
async def list_steps(core: TheCore, caller: Asker, name: FromPath[str], limit: Limit = 100) -> Steps:
    return Steps(await core.benchmarks.steps(caller, name, limit=limit))


@get("/benchmarks/{name:str}/series", summary="Its series")
async def list_curves(core: TheCore, caller: Asker, name: FromPath[str]) -> Curves:
    return Curves(await core.evaluations.curves.series(caller, name))


@get("/evaluations", summary="Files that tasks made of results, the newest first")
async def list_evaluations(
    core: TheCore, caller: Asker, benchmark: OfBenchmark = "", limit: Limit = 100
) -> Evaluations:
    return Evaluations(await core.evaluations.list(caller, benchmark, limit))


@delete("/evaluations/{id:str}", summary="Remove an evaluation")
async def remove_evaluation(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.evaluations.remove(caller, id)
