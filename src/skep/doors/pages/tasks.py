"""All tasks; one task: what it is, every move with its reason, its result, and what it writes, followed live."""

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby
from typing import Any, get_args

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect
from litestar.response import Stream as StreamResponse

from skep.core import Core
from skep.doors.http.given import Asked, Asker, PageToken, TheCore
from skep.doors.http.tasks import Attempt, InTaskState, OfStream
from skep.doors.pages.render import page as render
from skep.model.caller import Caller
from skep.model.task import Chunk, Stream, TaskState
from skep.tasks.states import ENDED

_PER_PAGE = 50
#: bytes of output on the page: the newest
_CUT = 100_000
#: characters of a result
_RESULT = 20_000


@get("/tasks")
async def tasks_page(
    request: Asked, core: TheCore, caller: Asker, page: PageToken = "", in_state: InTaskState = None
) -> Response[bytes]:
    found = await core.tasks.list(caller, page=page, limit=_PER_PAGE, state=in_state or "")
    return render(request, "tasks.html", found=found, page=page, state=in_state, states=(None, *get_args(TaskState)))


@get("/tasks/{id:str}")
async def task_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], attempt: Attempt = None
) -> Response[bytes]:
    view = await core.tasks.show(caller, id)
    attempt = view.task.attempt if attempt is None else attempt
    chunks = newest(await core.tasks.output(caller, id, attempt=attempt, newest=True))
    result = "" if view.result is None else msgspec.json.format(msgspec.json.encode(view.result)).decode()
    values: dict[str, Any] = {"task": view.task, "moves": view.moves, "result": result[:_RESULT]}
    values |= {"cut": max(0, len(result) - _RESULT), "attempt": attempt, "ended": view.task.state in ENDED}
    values |= {"output": pieces(chunks), "first": chunks[0].n if chunks else 0, "last": chunks[-1].n if chunks else -1}
    spec = {name: _plain(value) for name, value in msgspec.to_builtins(view.spec).items() if name not in _TOLD}
    return render(request, "task.html", spec=spec, **values)


#: what the page says elsewhere
_TOLD = ("name", "kind")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@get("/tasks/{id:str}/output")
async def output_text(
    core: TheCore, caller: Asker, id: FromPath[str], attempt: Attempt = None, stream: OfStream = None
) -> StreamResponse:
    """All of it as plain text, for reading, saving and searching."""
    task = (await core.tasks.show(caller, id)).task
    whole = _whole(core, caller, id, task.attempt if attempt is None else attempt, stream)
    return StreamResponse(whole, media_type="text/plain")


async def _whole(
    core: Core, caller: Caller, id: str, attempt: int, stream: Stream | None
) -> AsyncGenerator[bytes, None]:
    after = -1
    while chunks := await core.tasks.output(caller, id, after=after, attempt=attempt, stream=stream):
        yield b"".join(chunk.body for chunk in chunks)
        after = chunks[-1].n


@post("/tasks/{id:str}/cancel")
async def cancel_task_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    task = await core.tasks.cancel(caller, id)
    return Redirect(f"/tasks/{task.id}", status_code=303)


def newest(chunks: Sequence[Chunk]) -> list[Chunk]:
    """As many of the last ones as a page holds."""
    size, fit = 0, 0
    for chunk in reversed(chunks):
        size += len(chunk.body)
        if fit and size > _CUT:
            break
        fit += 1
    return list(chunks[len(chunks) - fit :])


def pieces(chunks: Sequence[Chunk]) -> list[tuple[Stream, str]]:
    """Stream and text by turns; what one stream wrote in a row is put together, so that no letter is torn."""
    return [
        (stream, b"".join(chunk.body for chunk in some)[-_CUT:].decode("utf-8", "replace"))
        for stream, some in groupby(chunks, key=lambda chunk: chunk.stream)
    ]
