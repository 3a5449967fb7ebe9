"""All tasks; one task: what it is, every move with its reason, its result, and what it writes, followed live."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import groupby
from typing import Any, get_args

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import Redirect
from litestar.response import Stream as StreamResponse

from skep.base.answers import WorkerMatch, WorkerView
from skep.base.caller import Caller
from skep.base.errors import BadInput
from skep.fleet.events import UNSTABLE_DOWNS
from skep.fleet.http import Chosen
from skep.fleet.ring import Member, Ring, nodes_of
from skep.interfaces.core import Core
from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.web import render as charts
from skep.interfaces.web import render as show
from skep.interfaces.web.render import page
from skep.interfaces.web.render import page as render
from skep.tasks.contexts_http import After, Cause, InContextState
from skep.tasks.http import Attempt, InTaskState, OfStream
from skep.tasks.model import Chunk, Context, Stream, Task, TaskState
from skep.tasks.selector import FACTS
from skep.tasks.transitions import ENDED

# The list of contexts, and one context: its tasks as a tree by what they need, and cancel, retry and remove.

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


_TASKS_PER_PAGE = 50
#: bytes of output on the page: the newest
_CUT = 100_000
#: characters of a result
_RESULT = 20_000


@get("/tasks")
async def tasks_page(
    request: Asked, core: TheCore, caller: Asker, page: PageToken = "", in_state: InTaskState = None
) -> Response[bytes]:
    found = await core.tasks.list(caller, page=page, limit=_TASKS_PER_PAGE, state=in_state or "")
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


# Workers: what they are like, what they run, and a selector tried on them.

Facts = Mapping[str, str | float]
#: what gauges and the heading show
_GAUGED = ("memory", "memory_used", "disk", "disk_free", "load", "cpu_percent", "sampled_at")
_BYTES = ("network_in", "network_out")
_LIMIT = "limit."
#: as many as there are colours
_MOST_DRAWN = 8


@get("/workers")
async def workers_page(request: Asked, core: TheCore, caller: Asker, selector: Chosen = "") -> Response[bytes]:
    """A selector that cannot be read is no error of the page: somebody may be typing it."""
    matches: dict[str, WorkerMatch] = {}
    error = None
    if selector.strip():
        try:
            matches = {one.worker: one for one in await core.workers.select(caller, selector)}
        except BadInput as wrong:
            error = wrong
    values: dict[str, Any] = {"workers": await core.workers.list(caller), "selector": selector, "matches": matches}
    values["ring"] = _ring(values["workers"])
    values |= {"error": error, "place": show.pointed(selector, error.column if error else None), "names": FACTS}
    return page(request, "workers.html", plain=plain, gauges=gauges, limits=limits, steady=UNSTABLE_DOWNS, **values)


def _ring(workers: Sequence[WorkerView]) -> list[charts.Arc]:
    """Who would hold what by the ring alone; of one worker, or of very many, there is nothing to see."""
    members = [
        Member(one.member.id, one.offer.name, one.member.state, one.offer.capacity, one.draining, one.downs)
        for one in workers
        if one.offer.mirror
    ]
    nodes = nodes_of(members)
    if not 1 < len(nodes) <= _MOST_DRAWN:
        return []
    names = {one.id: one.name for one in members}
    return charts.ring([names[node.id] for node in nodes], Ring(nodes).stretches())


def plain(facts: Facts) -> list[tuple[str, str]]:
    """What no gauge shows: first what selectors compare, then the rest."""
    others = sorted(name for name in set(facts) - set(FACTS) if not name.startswith(_LIMIT))
    return [(name, _text(name, facts[name])) for name in (*FACTS, *others) if name in facts and name not in _GAUGED]


def limits(facts: Facts) -> list[tuple[str, str]]:
    """What commands are bounded in, and how: the same on most machines, so only who asks reads it."""
    return [(name.removeprefix(_LIMIT), str(facts[name])) for name in sorted(facts) if name.startswith(_LIMIT)]


def _text(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return show.size(int(value)) if name in _BYTES else f"{value:g}"


def gauges(facts: Facts) -> list[tuple[str, float, str]]:
    """Name, how full from 0 to 1, and that in words."""
    number = {name: float(value) for name, value in facts.items() if not isinstance(value, str)}
    memory, disk, cpu = (number.get(name, 0.0) for name in ("memory", "disk", "cpu"))
    used = {"memory": (number.get("memory_used", 0.0), memory), "disk": (disk - number.get("disk_free", disk), disk)}
    found = [
        (name, part / total, f"{show.size(int(part))} of {show.size(int(total))}")
        for name, (part, total) in used.items()
        if total
    ]
    if "cpu_percent" in number:
        found.append(("processor", number["cpu_percent"] / 100, f"{number['cpu_percent']:.0f} %"))
    if cpu and "load" in number:
        found.append(("load", min(1.0, number["load"] / cpu), f"{number['load']:.1f} on {cpu:g} cores"))
    return found
