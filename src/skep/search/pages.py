"""The first page: a search box, and what it found."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter, URLEncodedBody
from litestar.response import Redirect

from skep.base.errors import BadInput
from skep.interfaces.http.dependencies import Asked, Asker, TheCore, TheSettings
from skep.interfaces.web import render as show
from skep.interfaces.web.render import page
from skep.interfaces.web.render import page as render
from skep.mirrors.http import WINDOW
from skep.search.api import SearchSpec
from skep.storage.code_index.model import Limits
from skep.topics.service import SEARCHES

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


# Saved searches: the list of one's own, and a form to keep another.

#: `query` itself is a reserved name of Litestar's
Text = Annotated[str, QueryParameter(name="query", max_length=10_000)]


class SearchForm(msgspec.Struct):
    name: str
    query: str
    topic: str = ""
    first: str = ""


@get("/searches")
async def searches_page(request: Asked, core: TheCore, caller: Asker, text: Text = "") -> Response[bytes]:
    found = await core.searches.list(caller)
    return page(request, "searches.html", found=found, query=text, own_topic=SEARCHES)


@post("/searches")
async def save_form(core: TheCore, caller: Asker, data: URLEncodedBody[SearchForm]) -> Redirect:
    await core.searches.save(caller, data.name.strip(), SearchSpec(data.query, data.topic.strip(), bool(data.first)))
    return Redirect("/searches", status_code=303)


@post("/searches/{name:str}/remove")
async def remove_form(core: TheCore, caller: Asker, name: FromPath[str]) -> Redirect:
    await core.searches.remove(caller, name)
    return Redirect("/searches", status_code=303)
