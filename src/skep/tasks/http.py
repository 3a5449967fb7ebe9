"""Tasks: submit one alone, list, show, cancel, and what they write."""

from typing import Annotated

from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream as StreamResponse

from skep.base.answers import Output, Page, Submitted
from skep.base.errors import BadInput
from skep.interfaces.http.asgi import STREAMED
from skep.interfaces.http.dependencies import Asked, Asker, Limit, PageToken, TheCore
from skep.tasks import output_http
from skep.tasks.contexts_http import Reason
from skep.tasks.model import ContextSpec, Stream, Task, TaskSpec, TaskState, TaskView

TAG = "tasks"
_LARGEST = 1 << 53

InTaskState = Annotated[TaskState | None, QueryParameter(name="state", description="only those in this state")]
OnWorker = Annotated[str, QueryParameter(max_length=100, description="only those that this worker has or had last")]
After = Annotated[int, QueryParameter(ge=-1, le=_LARGEST, description="number of the last piece that is known")]
Attempt = Annotated[int | None, QueryParameter(ge=0, le=_LARGEST, description="of this attempt; else the newest")]
OfStream = Annotated[Stream | None, QueryParameter(description="only this stream")]
Follow = Annotated[bool, QueryParameter(description="go on as server-sent events until the task has ended")]
LastSeen = Annotated[str, HeaderParameter(name="Last-Event-ID", description="what a browser sends when it comes back")]


@post("/tasks", summary="Submit one task, in a context of its own")
async def submit_task(core: TheCore, caller: Asker, data: JSONBody[TaskSpec]) -> Submitted:
    context = await core.contexts.submit(caller, ContextSpec(data.name or "task", (data,)))
    view = await core.contexts.show(caller, context.id, limit=1)
    return Submitted(context, view.tasks[0].id)


@get("/tasks", summary="List tasks, newest first")
async def list_tasks(
    core: TheCore,
    caller: Asker,
    in_state: InTaskState = None,
    worker: OnWorker = "",
    page: PageToken = "",
    limit: Limit = 100,
) -> Page[Task]:
    return await core.tasks.list(caller, state=in_state or "", worker=worker, page=page, limit=limit)


@get("/tasks/{id:str}", summary="Show a task: what it is, every move with its reason, and its result")
async def show_task(core: TheCore, caller: Asker, id: FromPath[str]) -> TaskView:
    return await core.tasks.show(caller, id)


@post("/tasks/{id:str}/cancel", status_code=200, summary="Abort a task")
async def cancel_task(core: TheCore, caller: Asker, id: FromPath[str], reason: Reason = "") -> Task:
    return await core.tasks.cancel(caller, id, reason)


@get(
    "/tasks/{id:str}/output",
    summary="What a task has written, or follow what it writes",
    responses={200: ResponseSpec(Output, description="JSON; with `follow` the chunks as server-sent events")},
)
async def task_output(
    request: Asked,
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    after: After = -1,
    attempt: Attempt = None,
    stream: OfStream = None,
    follow: Follow = False,
    last_seen: LastSeen = "",
) -> Response[Output] | StreamResponse:
    # what is wrong with the request is said before a stream begins
    task = (await core.tasks.show(caller, id)).task
    if not follow:
        found = await core.tasks.output(caller, id, after=after, attempt=attempt, stream=stream)
        chunks = output_http.bounded(found)
        return Response(Output(chunks, chunks[-1].n if chunks else after, task.state))
    if last_seen:
        attempt, after = _place(last_seen)
    begin = task.attempt if attempt is None else attempt
    events = output_http.events(core.tasks, caller, id, begin, after, stream, request.app.state.closing)
    return StreamResponse(events, media_type="text/event-stream", headers=STREAMED)


def _place(last_seen: str) -> tuple[int, int]:
    numbers = last_seen.split("/")
    if len(numbers) != 2 or not all(one.isascii() and one.isdecimal() and len(one) < 16 for one in numbers):
        raise BadInput(f"{last_seen[:60]!r} is no place in an output", hint="Last-Event-ID is ATTEMPT/NUMBER")
    return int(numbers[0]), int(numbers[1])
