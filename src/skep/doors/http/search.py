"""Search over everything the caller may see."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from skep.doors.http.given import Asker, TheCore, TheSettings
from skep.model.answers import SearchAnswer
from skep.model.search import Limits

Lines = Annotated[int, QueryParameter(ge=1, le=10_000, description="matching lines to return")]
Query = Annotated[str, QueryParameter(description="the query", max_length=10_000)]


@get("/search", tags=["search"], summary="Search lines")
async def search(
    *,
    core: TheCore,
    caller: Asker,
    settings: TheSettings,
    q: Query,
    lines: Lines = 50,
    seconds: Annotated[float | None, QueryParameter(gt=0, description="longest time; what was found is given")] = None,
) -> SearchAnswer:
    longest = settings.search_seconds
    return await core.search.search(caller, q, Limits(lines=lines, seconds=min(seconds or longest, longest)))


HANDLERS = [search]
