"""Is it alive, is it ready, how is it doing."""

from typing import Any

import msgspec
from litestar import MediaType, Response, get

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.http.schema import tidy
from skep.model.answers import Status


class Health(msgspec.Struct, frozen=True):
    status: str
    reason: str = ""


@get("/healthz", include_in_schema=False)
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@get("/readyz", include_in_schema=False)
async def readyz(core: TheCore) -> Response[Health]:
    reason = await core.status.ready()
    return Response(Health("waiting" if reason else "ok", reason), status_code=503 if reason else 200)


@get("/metrics", include_in_schema=False, media_type=MediaType.TEXT)
async def metrics(core: TheCore, caller: Asker) -> Response[str]:
    caller.need("read")
    return Response(await core.status.metrics(), media_type="text/plain; version=0.0.4")


@get("/status", tags=["status"], summary="Members, sources by state, size of the index")
async def show_status(core: TheCore, caller: Asker) -> Status:
    return await core.status.show(caller)


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Asked) -> dict[str, Any]:
    """Made when first asked for: the start does not wait for it."""
    return tidy(request.app.openapi_schema.to_schema())


HANDLERS = [show_status, openapi]
ROOT_HANDLERS = [healthz, readyz, metrics]
