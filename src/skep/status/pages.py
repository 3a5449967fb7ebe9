"""How this Skep is doing."""

from litestar import Response, get

from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web.render import page


@get("/status")
async def status_page(request: Asked, core: TheCore, caller: Asker) -> Response[bytes]:
    return page(request, "status.html", status_view=await core.status.show(caller), reason=await core.status.ready())
