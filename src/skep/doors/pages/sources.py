"""The list of sources, one source, and what a person does with them: add, fetch now, accept a loss, remove."""

from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect

from skep.config import Settings
from skep.doors.http.given import Asked, Asker, InState, PageToken, TheCore, TheSettings
from skep.doors.pages import show
from skep.doors.pages.records import node_of
from skep.doors.pages.render import page
from skep.errors import NeedsToken, NotAllowed, SkepError
from skep.model.answers import FileView, Tree
from skep.model.caller import Visibility
from skep.model.source import Source, SourceState

_PER_PAGE = 50
_README_LIMIT = 20_000
_BUSY = ("new", "cloning")


class AddForm(msgspec.Struct):
    url: str = ""
    visibility: Visibility = "public"


class AcceptForm(msgspec.Struct):
    #: as the person saw it
    loss: str = ""


@get("/sources")
async def sources_page(
    request: Asked, core: TheCore, caller: Asker, page: PageToken = "", in_state: InState = None
) -> Response[bytes]:
    return await _list(request, core, caller, token=page, state=in_state)


@post("/sources")
async def add_source_form(
    request: Asked,
    core: TheCore,
    caller: Asker,
    data: URLEncodedBody[AddForm],
) -> Response[bytes] | Redirect:
    try:
        added = await core.sources.add(caller, data.url.strip(), visibility=data.visibility)
    except (NeedsToken, NotAllowed):
        raise
    except SkepError as error:
        return await _list(request, core, caller, form=data, error=error)
    return Redirect(f"/sources/{added.source.id}", status_code=303)


async def _list(
    request: Asked,
    core: TheCore,
    caller: Asker,
    *,
    token: str = "",
    state: SourceState | None = None,
    form: AddForm | None = None,
    error: SkepError | None = None,
) -> Response[bytes]:
    found = await core.sources.list(caller, page=token, limit=_PER_PAGE, state=state)
    values: dict[str, Any] = {"found": found, "page": token, "state": state, "form": form or AddForm(), "error": error}
    return page(request, "sources.html", error.status if error else 200, **values)


@get("/sources/{id:str}")
async def source_page(
    request: Asked, core: TheCore, caller: Asker, settings: TheSettings, id: FromPath[str]
) -> Response[bytes]:
    source = await core.sources.show(caller, id)
    changes = await core.sources.changes(caller, source.id, limit=10)
    tree = await _tree(core, caller, source)
    values: dict[str, Any] = {"source": source, "changes": changes.items, "tree": tree, "rev": "", "busy": busy(source)}
    values |= {"clone": clone_url(request, settings, source), "readme": await _readme(core, caller, tree)}
    values |= {"node": await node_of(core, caller, source)}
    return page(request, "node.html" if values["node"] else "source.html", **values)


@post("/sources/{id:str}/fetch")
async def fetch_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    asked = await core.sources.fetch(caller, id)
    return Redirect(f"/sources/{asked.source.id}", status_code=303)


@post("/sources/{id:str}/accept")
async def accept_form(core: TheCore, caller: Asker, id: FromPath[str], data: URLEncodedBody[AcceptForm]) -> Redirect:
    source = await core.sources.accept(caller, id, loss=data.loss)
    return Redirect(f"/sources/{source.id}", status_code=303)


@post("/sources/{id:str}/remove")
async def remove_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
    await core.sources.remove(caller, id)
    return Redirect("/sources", status_code=303)


def busy(source: Source) -> bool:
    """Something is under way that a person may want to watch."""
    waits = source.state == "current" and source.indexed_commit is None and source.failure is None
    return source.state in _BUSY or source.progress is not None or (waits and bool(source.default_branch))


def clone_url(request: Asked, settings: Settings, source: Source) -> str:
    base = settings.public_url.rstrip("/") or f"{request.scope['scheme']}://{request.headers['host']}"
    return f"{base}/git/{show.url_path(source.name)}.git"


async def _tree(core: TheCore, caller: Asker, source: Source) -> Tree | None:
    """None while there is no mirror, or nothing in it."""
    try:
        return await core.gather.tree(caller, source.id)
    except SkepError:
        return None


async def _readme(core: TheCore, caller: Asker, tree: Tree | None) -> FileView | None:
    name = show.readme([item.path for item in tree.items if item.kind == "file"]) if tree else None
    if tree is None or name is None:
        return None
    try:
        file = await core.gather.file(caller, tree.source.id, name, tree.commit)
    except SkepError:
        return None
    return file if file.text and len(file.text) <= _README_LIMIT else None
