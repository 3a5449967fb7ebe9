"""The list of contexts, and one context: its tasks as a tree by what they need, and cancel, retry and remove."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect

from skep.doors.http.contexts import After, Cause, InContextState
from skep.doors.http.given import Asked, Asker, PageToken, TheCore
from skep.doors.pages.render import page as render
from skep.model.task import Context, Task

_PER_PAGE = 50
_TASKS = 200
#: steps by which the tree moves to the right; beyond them it goes straight down
_DEEPEST = 8


class Branch(msgspec.Struct, frozen=True):
    """One line of the tree."""

    task: Task
    depth: int
    #: what it needs beside the task it stands below
    needs: list[str]


@get("/contexts")
async def contexts_page(
    request: Asked,
    core: TheCore,
    caller: Asker,
    page: PageToken = "",
    in_state: InContextState = None,
    cause: Cause = "",
) -> Response[bytes]:
    found = await core.contexts.list(caller, page=page, limit=_PER_PAGE, state=in_state or "", cause=cause)
    return render(request, "contexts.html", found=found, page=page, state=in_state, cause=cause)


@get("/contexts/{id:str}")
async def context_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], after: After = ""
) -> Response[bytes]:
    view = await core.contexts.show(caller, id, after=after, limit=_TASKS + 1)
    shown = view.tasks[:_TASKS]
    values: dict[str, Any] = {"context": view.context, "branches": tree(shown, view.needs), "after": after}
    return render(request, "context.html", next=shown[-1].id if len(view.tasks) > _TASKS else "", **values)


@post("/contexts/{id:str}/cancel")
async def cancel_context_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    return _to(await core.contexts.cancel(caller, id))


@post("/contexts/{id:str}/retry")
async def retry_context_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    return _to(await core.contexts.retry(caller, id))


@post("/contexts/{id:str}/remove")
async def remove_context_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    await core.contexts.remove(caller, id)
    return Redirect("/contexts", status_code=303)


def _to(context: Context) -> Redirect:
    return Redirect(f"/contexts/{context.id}", status_code=303)


def tree(tasks: Sequence[Task], needs: Mapping[str, Sequence[str]]) -> list[Branch]:
    """Each task below the last of those it needs; what is not among `tasks` is only named. Pure."""
    names = {task.name for task in tasks}
    below: dict[str, list[Task]] = {}
    for task in tasks:
        known = [need for need in needs.get(task.name, ()) if need in names]
        below.setdefault(known[-1] if known else "", []).append(task)
    branches: list[Branch] = []
    left = [(task, "", 0) for task in reversed(below.get("", ()))]
    while left:
        task, parent, depth = left.pop()
        others = [need for need in needs.get(task.name, ()) if need != parent]
        branches.append(Branch(task, min(depth, _DEEPEST), others))
        left += [(child, task.name, depth + 1) for child in reversed(below.get(task.name, ()))]
    return branches
