"""Saved searches: the list of one's own, and a form to keep another."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter, URLEncodedBody
from litestar.response import Redirect

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.pages.render import page
from skep.model.saved import SearchSpec
from skep.topics.service import SEARCHES

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
