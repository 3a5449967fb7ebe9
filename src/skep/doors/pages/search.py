"""The first page: a search box, and what it found."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from skep.doors.http.given import Asked, Asker, TheCore, TheSettings
from skep.doors.pages import show
from skep.doors.pages.files import WINDOW
from skep.doors.pages.render import page
from skep.errors import BadInput
from skep.model.search import Limits

_PER_FILE = 20
_MORE = 10

Lines = Annotated[int, QueryParameter(ge=1, le=10_000)]
Query = Annotated[str, QueryParameter(max_length=10_000)]


@get("/", include_in_schema=False)
async def search_page(
    *, request: Asked, core: TheCore, caller: Asker, settings: TheSettings, q: Query = "", lines: Lines = 100
) -> Response[bytes]:
    if not q.strip():
        return page(request, "home.html", status_view=await core.status.show(caller))
    limits = Limits(lines=lines, lines_per_file=_PER_FILE, seconds=settings.search_seconds)
    try:
        answer = await core.search.search(caller, q, limits)
    except BadInput as error:
        place = show.pointed(q, error.column)
        return page(request, "query_error.html", 400, q=q, error=error, place=place)
    more = min(lines * _MORE, 10_000) if answer.partial and lines < 10_000 else 0
    return page(request, "results.html", q=q, answer=answer, more=more, window=WINDOW)


HANDLERS = [search_page]
