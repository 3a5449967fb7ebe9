"""Lists of sources, and one of them: what it names, what is wrong in it, and what waits for a person."""

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect

from skep.doors.http.given import Asked, Asker, PageToken, TheCore
from skep.doors.pages.render import page as render

_PER_PAGE = 50
_PROBLEMS = 100


class ConfirmForm(msgspec.Struct):
    version: str = ""


@get("/lists")
async def lists_page(request: Asked, core: TheCore, caller: Asker) -> Response[bytes]:
    return render(request, "lists.html", lists=await core.lists.list(caller))


@get("/lists/{id:str}")
async def list_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], page: PageToken = ""
) -> Response[bytes]:
    found = await core.lists.show(caller, id)
    entries = await core.lists.entries(caller, found.id, page=page, limit=_PER_PAGE)
    gone = await core.lists.entries(caller, found.id, limit=_PER_PAGE, gone=True)
    problems = await core.lists.problems(caller, found.id, limit=_PROBLEMS)
    return render(request, "list.html", list=found, entries=entries, gone=gone.items, problems=problems, page=page)


@post("/lists/{id:str}/confirm")
async def confirm_form(core: TheCore, caller: Asker, id: FromPath[str], data: URLEncodedBody[ConfirmForm]) -> Redirect:
    found = await core.lists.confirm(caller, id, data.version)
    return Redirect(f"/lists/{found.id}", status_code=303)
