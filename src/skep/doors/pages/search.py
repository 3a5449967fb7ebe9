"""The first page: a search box, and what it found."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from skep.doors.http.given import Asked, Asker, TheCore, TheSettings
from skep.doors.pages import show
from skep.doors.pages.files import WINDOW
from skep.doors.pages.render import page as render
from skep.errors import BadInput
from skep.model.search import Limits

#: matching lines are counted up to this many
_COUNTED = 1_000

Lines = Annotated[int, QueryParameter(ge=1, le=10_000)]
Context = Annotated[int, QueryParameter(ge=0, le=50)]
Query = Annotated[str, QueryParameter(max_length=10_000)]
PageToken = Annotated[str, QueryParameter(max_length=10_000)]
Explain = Annotated[bool, QueryParameter()]


@get("/")
async def search_page(
    *,
    request: Asked,
    core: TheCore,
    caller: Asker,
    settings: TheSettings,
    q: Query = "",
    lines: Lines = 100,
    context: Context = 0,
    explain: Explain = False,
    page: PageToken = "",
) -> Response[bytes]:
    if not q.strip():
        return render(request, "home.html", status_view=await core.status.show(caller))
    limits = Limits(
        lines=lines,
        seconds=settings.search_seconds,
        context=context,
        count=_COUNTED,
        explain=explain,
    )
    try:
        answer = await core.search.search(caller, q, limits, page=page, with_facets=True)
    except BadInput as error:
        place = show.pointed(q, error.column)
        return render(request, "query_error.html", 400, q=q, error=error, place=place)
    asked = {"q": q, "lines": "" if lines == 100 else lines, "context": context or "", "explain": explain or ""}
    return render(request, "results.html", q=q, answer=answer, page=page, asked=asked, explain=explain, window=WINDOW)


@get("/docs/search")
async def syntax_page(request: Asked) -> Response[bytes]:
    return render(request, "syntax.html")
