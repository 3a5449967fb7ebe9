"""The list of packages: what each can do, and how to have it."""

from litestar import Response, get

from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.web.render import page as render
from skep.packages.http import Prefix

_PER_PAGE = 50


@get("/packages")
async def packages_page(
    request: Asked, core: TheCore, caller: Asker, prefix: Prefix = "", page: PageToken = ""
) -> Response[bytes]:
    found = await core.packages.list(caller, prefix=prefix, page=page, limit=_PER_PAGE)
    return render(request, "packages.html", found=found, page=page)
