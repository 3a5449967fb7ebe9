"""Who changed what."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from skep.base.answers import Audited, Page
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore

TAG = "audit"
About = Annotated[str, QueryParameter(description="a verb, a caller, or part of what was changed", max_length=200)]


@get("/audit", summary="Who changed what, the newest first")
async def list_audit(
    core: TheCore, caller: Asker, about: About = "", page: PageToken = "", limit: Limit = 100
) -> Page[Audited]:
    return await core.audit.list(caller, about=about, page=page, limit=limit)
