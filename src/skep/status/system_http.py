"""How it is doing, and what it can be asked."""

from typing import Any

from litestar import get

from skep.base.answers import Status
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.http.routes import tidy

TAG = "status"


@get("/status", summary="Members, sources by state, size of the index")
async def show_status(core: TheCore, caller: Asker) -> Status:
    return await core.status.show(caller)


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Asked) -> dict[str, Any]:
    """Made when first asked for: the start does not wait for it."""
    return tidy(request.app.openapi_schema.to_schema())
