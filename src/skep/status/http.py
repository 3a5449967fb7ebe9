"""Is it alive, is it ready, how is it doing: for machines, at the root."""

import msgspec
from litestar import MediaType, Response, get

from skep.interfaces.http.dependencies import Asker, TheCore


class Health(msgspec.Struct, frozen=True):
    status: str
    reason: str = ""


@get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@get("/readyz")
async def readyz(core: TheCore) -> Response[Health]:
    reason = await core.status.ready()
    return Response(Health("waiting" if reason else "ok", reason), status_code=503 if reason else 200)


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(core: TheCore, caller: Asker) -> Response[str]:
    caller.need("read")
    return Response(await core.status.metrics(), media_type="text/plain; version=0.0.4")
