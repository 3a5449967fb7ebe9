"""Results: record, list, aggregate, export; the curves they make."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from skep.base.answers import Page
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore
from skep.results.api import Aggregate, NewResults, Recorded, Result, ResultQuery, Series
from skep.results.fields import FORMATS, lines

TAG = "results"

Where = Annotated[
    list[str] | None,
    QueryParameter(description="filters, all of which hold: `metric=time`, `group~parse*`, `value>=1.5`, `ref=a|b`"),
]
Fields = Annotated[str, QueryParameter(description="only these, divided by commas", max_length=1000)]
Order = Annotated[str, QueryParameter(description="a field; with - before it the largest first", max_length=100)]
By = Annotated[str, QueryParameter(description="fields, divided by commas", max_length=1000)]
Format = Annotated[Literal["jsonl", "csv"], QueryParameter(name="format", description="JSON lines, or CSV with a head")]
Part = Annotated[str, QueryParameter(max_length=500)]
Points = Annotated[int, QueryParameter(ge=1, le=100_000, description="the newest of them")]


@post("/results", summary="Record results of a task")
async def record_results(core: TheCore, caller: Asker, data: JSONBody[NewResults]) -> Recorded:
    done = await core.results.record(caller, data.task, data.attempt, data.results, first=data.first)
    return Recorded(done)


@get(
    "/results",
    summary="List results, newest first",
    responses={200: ResponseSpec(Page[Result], description="with `fields`, only those of each")},
)
async def list_results(
    core: TheCore,
    caller: Asker,
    where: Where = None,
    fields: Fields = "",
    order: Order = "-at",
    page: PageToken = "",
    limit: Limit = 100,
) -> Page[dict[str, Any]]:
    return await core.results.select(caller, ResultQuery(tuple(where or ()), _names(fields), order, page, limit))


@get("/results/aggregate", summary="Count, min, max, mean, median and p95 of results, by fields")
async def aggregate_results(
    core: TheCore, caller: Asker, where: Where = None, by: By = "", limit: Limit = 1000
) -> Page[Aggregate]:
    return Page(await core.results.aggregate(caller, where or (), _names(by), limit))


@get("/results/series", summary="The curves there are")
async def list_series(core: TheCore, caller: Asker, where: Where = None, limit: Limit = 1000) -> Page[Series]:
    return Page(await core.results.series(caller, where or (), limit))


@get("/results/points", summary="One curve: the results of a series, oldest commit first")
async def series_points(
    core: TheCore,
    caller: Asker,
    benchmark: Part = "",
    source: Part = "",
    ref: Part = "",
    group: Part = "",
    metric: Part = "",
    machine: Part = "",
    limit: Points = 10_000,
) -> Page[Result]:
    return Page(await core.results.points(caller, Series(benchmark, source, ref, group, metric, machine), limit))


@get("/results/export", summary="Everything that matches, as one file")
async def export_results(
    core: TheCore,
    caller: Asker,
    where: Where = None,
    fields: Fields = "",
    order: Order = "at",
    form: Format = "jsonl",
) -> Stream:
    query = ResultQuery(tuple(where or ()), _names(fields), order)
    # what is wrong with it is said before a stream begins
    pieces = core.results.every(caller, query)
    first = await anext(pieces)

    async def all_of_them() -> AsyncIterator[list[dict[str, Any]]]:
        yield first
        async for piece in pieces:
            yield piece

    headers = {"content-disposition": f'attachment; filename="results.{form}"'}
    return Stream(lines(all_of_them(), form, query.fields), media_type=FORMATS[form], headers=headers)


@get("/results/{id:str}", summary="Show a result")
async def show_result(core: TheCore, caller: Asker, id: FromPath[str]) -> Result:
    return await core.results.show(caller, id)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()
