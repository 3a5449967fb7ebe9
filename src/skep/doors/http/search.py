"""Search over everything the caller may see: pages of JSON, or a stream."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from litestar.response import Stream

from skep.config import Settings
from skep.doors.http.given import Asked, Asker, TheCore, TheSettings
from skep.errors import SkepError
from skep.model.answers import Completions, Hit, SearchAnswer, SearchSummary, SourceHit
from skep.model.search import Limits

Query = Annotated[str, QueryParameter(description="the query", max_length=10_000)]
Lines = Annotated[int, QueryParameter(ge=1, le=10_000, description="matching lines to return")]
Context = Annotated[int, QueryParameter(ge=0, le=50, description="lines before and after each matching line")]
PageToken = Annotated[str, QueryParameter(max_length=10_000, description="`next_page` of the page before")]
Count = Annotated[int, QueryParameter(ge=0, le=1_000_000, description="go on counting matching lines up to this many")]
Explain = Annotated[bool, QueryParameter(description="say what each score is made of")]
WithFacets = Annotated[bool, QueryParameter(description="say which languages and sources the files are of")]
Seconds = Annotated[float | None, QueryParameter(gt=0, description="longest time; what was found is given")]
Cursor = Annotated[int | None, QueryParameter(ge=0, description="where in the query; its end, if not given")]

_EVENTS, _LINES = "text/event-stream", "application/x-ndjson"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_encode = msgspec.json.Encoder().encode
_NAMES: dict[type, str] = {Hit: "hit", SourceHit: "source", SearchSummary: "summary"}


@get(
    "/search",
    tags=["search"],
    summary="Search, best first; or as a stream, as they are found",
    responses={
        200: ResponseSpec(SearchAnswer, description=f"JSON; a stream where `{_EVENTS}` or `{_LINES}` is accepted")
    },
)
async def search(
    *,
    request: Asked,
    core: TheCore,
    caller: Asker,
    settings: TheSettings,
    q: Query,
    lines: Lines = 50,
    context: Context = 0,
    page: PageToken = "",
    count: Count = 0,
    explain: Explain = False,
    facets: WithFacets = False,
    seconds: Seconds = None,
) -> Response[SearchAnswer] | Stream:
    limits = Limits(lines=lines, context=context, count=count, explain=explain, seconds=longest(settings, seconds))
    for media in (_EVENTS, _LINES):
        if media in request.headers.get("accept", ""):
            found = await core.search.stream(caller, q, limits)
            return Stream(_written(found, media), media_type=media, headers=_HEADERS)
    return Response(await core.search.search(caller, q, limits, page=page, with_facets=facets))


@get("/search/complete", tags=["search"], summary="What may stand at the cursor of a query")
async def complete(core: TheCore, caller: Asker, q: Query = "", cursor: Cursor = None) -> Completions:
    return Completions(await core.search.complete(caller, q, len(q) if cursor is None else cursor))


def longest(settings: Settings, seconds: float | None) -> float:
    return min(seconds or settings.search_seconds, settings.search_seconds)


async def _written(found: AsyncGenerator[Hit | SourceHit | SearchSummary, None], media: str) -> AsyncIterator[bytes]:
    """One line, or one event, for each; the summary is the last, or what went wrong."""
    try:
        async for item in found:
            yield _one(_NAMES[type(item)], item, media)
    except SkepError as error:
        yield _one("error", {"code": error.code, "message": error.message, "hint": error.hint}, media)
    finally:
        await found.aclose()


def _one(name: str, item: object, media: str) -> bytes:
    if media == _EVENTS:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(item))
    return _encode({name: item}) + b"\n"


HANDLERS = [search, complete]
