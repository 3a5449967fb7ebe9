"""Contexts: submit, list, show, wait, cancel, retry, remove, and more tasks for one that runs."""

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.base.answers import Page, TaskIds
from skep.interfaces.http.asgi import unless
from skep.interfaces.http.decoding import Pieces
from skep.interfaces.http.dependencies import Asked, Asker, Limit, PageToken, TheCore
from skep.tasks.contexts import MOST_ADDED, MOST_TASKS
from skep.tasks.model import Context, ContextSpec, ContextState, ContextView, TaskSpec

TAG = "contexts"
#: bytes: a hundred thousand tasks fit into one request
BODY_LIMIT = 64_000_000

InContextState = Annotated[ContextState | None, QueryParameter(name="state", description="only those in this state")]
Cause = Annotated[str, QueryParameter(max_length=1000, description="only those whose cause begins with this")]
After = Annotated[str, QueryParameter(max_length=100, description="id of the last task that is known already")]
Reason = Annotated[str, QueryParameter(max_length=1000, description="why; it stands in the moves of the tasks")]


class MoreTasks(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[TaskSpec]


@post(
    "/contexts",
    summary="Submit tasks that belong together",
    request_max_body_size=BODY_LIMIT,
    pieces=Pieces("tasks", TaskSpec, MOST_TASKS),
)
async def submit_context(core: TheCore, caller: Asker, data: JSONBody[ContextSpec]) -> Context:
    return await core.contexts.submit(caller, data)


@get("/contexts", summary="List contexts, newest first")
async def list_contexts(
    core: TheCore,
    caller: Asker,
    in_state: InContextState = None,
    cause: Cause = "",
    page: PageToken = "",
    limit: Limit = 100,
) -> Page[Context]:
    return await core.contexts.list(caller, page=page, limit=limit, state=in_state or "", cause=cause)


@get("/contexts/{id:str}", summary="Show a context and its tasks, oldest first")
async def show_context(
    core: TheCore, caller: Asker, id: FromPath[str], after: After = "", limit: Limit = 1000
) -> ContextView:
    return await core.contexts.show(caller, id, after=after, limit=limit)


@get("/contexts/{id:str}/wait", summary="Wait until a context has ended; RUNNING: the time was over before")
async def wait_context(
    request: Asked,
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    seconds: Annotated[float, QueryParameter(ge=0, le=60, description="how long at most")] = 30.0,
) -> Context:
    ended = await unless(request.app.state.closing.wait(), core.contexts.wait(caller, id, seconds))
    return ended or await core.contexts.wait(caller, id, 0)


@post("/contexts/{id:str}/cancel", status_code=202, summary="Abort what has not ended in a context")
async def cancel_context(core: TheCore, caller: Asker, id: FromPath[str], reason: Reason = "") -> Context:
    return await core.contexts.cancel(caller, id, reason)


@post("/contexts/{id:str}/retry", status_code=200, summary="Submit again what FAILED or was ABORTED")
async def retry_context(core: TheCore, caller: Asker, id: FromPath[str]) -> Context:
    return await core.contexts.retry(caller, id)


@post(
    "/contexts/{id:str}/tasks",
    summary="Add tasks to a running context",
    request_max_body_size=BODY_LIMIT,
    pieces=Pieces("tasks", TaskSpec, MOST_ADDED),
)
async def add_tasks(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[MoreTasks]) -> TaskIds:
    return TaskIds(await core.contexts.add(caller, id, data.tasks))


@delete("/contexts/{id:str}", summary="Remove a context that has ended, its tasks and their output")
async def remove_context(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.contexts.remove(caller, id)
