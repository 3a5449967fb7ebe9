"""The list of sources, one source, and what a person does with them: add, fetch now, accept a loss, remove."""

from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect

from skep.base.answers import FileView, Tree
from skep.base.caller import Visibility
from skep.base.errors import NeedsToken, NotAllowed, NotFound, SkepError
from skep.config.settings import Settings
from skep.dataone.pages import node_of
from skep.interfaces.http.dependencies import Asked, Asker, InState, PageToken, TheCore, TheSettings
from skep.interfaces.web import render as show
from skep.interfaces.web.render import page
from skep.interfaces.web.render import page as render
from skep.sources.model import CredentialSpec, Source, SourceState, Use

# Credentials: which there are and whether they work; set, given another secret and removed. No page shows a secret.


class CredentialForm(msgspec.Struct):
    name: str = ""
    host: str = ""
    source: str = ""
    use: Use = "fetch"
    user: str = "x-access-token"
    public: str = ""
    token: str = ""


class SecretForm(msgspec.Struct):
    token: str = ""


@get("/credentials")
async def credentials_page(request: Asked, core: TheCore, caller: Asker) -> Response[bytes]:
    return await _list(request, core, caller)


@post("/credentials")
async def set_form(
    request: Asked, core: TheCore, caller: Asker, data: URLEncodedBody[CredentialForm]
) -> Response[bytes] | Redirect:
    user = data.user.strip() or "x-access-token"
    given = (data.name.strip(), data.host.strip().lower(), data.source.strip(), data.use, user, bool(data.public))
    return await _put(request, core, caller, CredentialSpec(*given), data)


@post("/credentials/{name:str}/rotate")
async def rotate_form(
    request: Asked, core: TheCore, caller: Asker, name: FromPath[str], data: URLEncodedBody[SecretForm]
) -> Response[bytes] | Redirect:
    known = [one for one in await core.credentials.list(caller) if one.name == name]
    if not known:
        raise NotFound(f"there is no credential {name!r}")
    one = known[0]
    spec = CredentialSpec(one.name, one.host, one.source, one.use, one.user, one.public)
    return await _put(request, core, caller, spec, CredentialForm(token=data.token))


@post("/credentials/{name:str}/remove")
async def remove_form(core: TheCore, caller: Asker, name: FromPath[str]) -> Redirect:
    await core.credentials.remove(caller, name)
    return Redirect("/credentials", status_code=303)


async def _put(
    request: Asked, core: TheCore, caller: Asker, spec: CredentialSpec, form: CredentialForm
) -> Response[bytes] | Redirect:
    try:
        await core.credentials.put(caller, spec, form.token.strip())
    except (NeedsToken, NotAllowed):
        raise
    except SkepError as error:
        return await _list(request, core, caller, form, error)
    return Redirect("/credentials", status_code=303)


async def _list(
    request: Asked,
    core: TheCore,
    caller: Asker,
    form: CredentialForm | None = None,
    error: SkepError | None = None,
) -> Response[bytes]:
    found = await core.credentials.list(caller)
    status = error.status if error else 200
    return page(request, "credentials.html", status, found=found, form=form or CredentialForm(), error=error)


# Lists of sources, and one of them: what it names, what is wrong in it, and what waits for a person.

_PER_PAGE = 50
_PROBLEMS = 100


class ConfirmForm(msgspec.Struct):
    version: str = ""


@get("/lists")
async def lists_page(request: Asked, core: TheCore, caller: Asker) -> Response[bytes]:
    return render(request, "lists.html", lists=await core.lists.list(caller))


@get("/lists/{id:str}")
async def list_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], page: PageToken = ""
) -> Response[bytes]:
    found = await core.lists.show(caller, id)
    entries = await core.lists.entries(caller, found.id, page=page, limit=_PER_PAGE)
    gone = await core.lists.entries(caller, found.id, limit=_PER_PAGE, gone=True)
    problems = await core.lists.problems(caller, found.id, limit=_PROBLEMS)
    return render(request, "list.html", list=found, entries=entries, gone=gone.items, problems=problems, page=page)


@post("/lists/{id:str}/confirm")
async def confirm_form(core: TheCore, caller: Asker, id: FromPath[str], data: URLEncodedBody[ConfirmForm]) -> Redirect:
    found = await core.lists.confirm(caller, id, data.version)
    return Redirect(f"/lists/{found.id}", status_code=303)


_SOURCES_PER_PAGE = 50
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
    return await _sources_list(request, core, caller, token=page, state=in_state)


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
        return await _sources_list(request, core, caller, form=data, error=error)
    return Redirect(f"/sources/{added.source.id}", status_code=303)


async def _sources_list(
    request: Asked,
    core: TheCore,
    caller: Asker,
    *,
    token: str = "",
    state: SourceState | None = None,
    form: AddForm | None = None,
    error: SkepError | None = None,
) -> Response[bytes]:
    found = await core.sources.list(caller, page=token, limit=_SOURCES_PER_PAGE, state=state)
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
async def sources_remove_form(core: TheCore, caller: Asker, id: FromPath[str]) -> Redirect:
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
