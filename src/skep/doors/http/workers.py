"""Workers: what they offer and run, and which of them a selector chooses."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from skep.doors.http.given import Asker, TheCore
from skep.model.answers import WorkerMatch, WorkerView

_TAGS = ["workers"]
Chosen = Annotated[str, QueryParameter(max_length=10_000, description="an expression over their facts")]


@get("/workers", tags=_TAGS, summary="List workers with what they offer and run")
async def list_workers(core: TheCore, caller: Asker) -> list[WorkerView]:
    return await core.workers.list(caller)


@get("/workers/select", tags=_TAGS, summary="Try a selector: which workers match, and why the others do not")
async def select_workers(core: TheCore, caller: Asker, selector: Chosen = "") -> list[WorkerMatch]:
    return await core.workers.select(caller, selector)


HANDLERS = [list_workers, select_workers]
