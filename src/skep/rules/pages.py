"""The list of rules: what each waits for and what it fired last; switched on and off here."""

from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect

from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.web.render import page as render
from skep.rules.api import RuleEdit

_PER_PAGE = 50


@get("/rules")
async def rules_page(request: Asked, core: TheCore, caller: Asker, page: PageToken = "") -> Response[bytes]:
    found = await core.rules.list(caller, page=page, limit=_PER_PAGE)
    return render(request, "rules.html", found=found, page=page)


@post("/rules/{name:str}/enable")
async def enable_form(core: TheCore, caller: Asker, name: FromPath[str]) -> Redirect:
    await core.rules.update(caller, name, RuleEdit(enabled=True))
    return Redirect("/rules", status_code=303)


@post("/rules/{name:str}/disable")
async def disable_form(core: TheCore, caller: Asker, name: FromPath[str]) -> Redirect:
    await core.rules.update(caller, name, RuleEdit(enabled=False))
    return Redirect("/rules", status_code=303)
