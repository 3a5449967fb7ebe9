"""Webhooks of forges, at /hooks/<forge>. The answer says no more than that the delivery was understood."""

from litestar import post
from litestar.params import FromPath

from skep.base.errors import NotFound
from skep.interfaces.http.dependencies import Asked, TheCore
from skep.sources.webhooks import FORGES

BODY_LIMIT = 5_000_000


@post("/hooks/{forge:str}", status_code=202, request_max_body_size=BODY_LIMIT, tags=["hooks"],
      summary="A forge tells of a push; see docs/hooks.md")  # fmt: skip
async def take_delivery(request: Asked, core: TheCore, forge: FromPath[str]) -> dict[str, str]:
    known = next((one for one in FORGES if one == forge), None)
    if known is None:
        raise NotFound(f"hooks of {forge!r} are not taken", hint=f"known: {', '.join(FORGES)}")
    await core.hooks.take(known, request.headers, await request.body())
    return {"status": "taken"}
