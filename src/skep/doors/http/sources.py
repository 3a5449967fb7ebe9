"""Sources: add, list, show, update, fetch, accept, wait, changes, tree, file, remove."""

from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.doors.http.given import Asker, InState, Limit, PageToken, TheCore
from skep.model.answers import Added, FileView, Page, Tree, Waited
from skep.model.caller import Visibility
from skep.model.source import Change, Source

_TAGS = ["sources"]
Rev = Annotated[str, QueryParameter(description="branch, tag or commit; empty: the default branch", max_length=1000)]
TreePath = Annotated[str, QueryParameter(description="path from the root of the repository", max_length=10_000)]


class NewSource(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    kind: str = "git"
    visibility: Visibility = "public"
    labels: list[str] = []


class SourceEdit(msgspec.Struct, forbid_unknown_fields=True):
    """What is not given stays."""

    url: str | None = None
    visibility: Visibility | None = None
    labels: list[str] | None = None
    #: those named change; null takes one back
    settings: dict[str, Any] | None = None


@post("/sources", tags=_TAGS, summary="Add a source; one that is known already is answered with 200")
async def add_source(core: TheCore, caller: Asker, data: JSONBody[NewSource]) -> Response[Added]:
    added = await core.sources.add(
        caller, data.url, kind=data.kind, visibility=data.visibility, labels=tuple(data.labels)
    )
    return Response(added, status_code=201 if added.created else 200)


@get("/sources", tags=_TAGS, summary="List sources")
async def list_sources(
    core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100, in_state: InState = None
) -> Page[Source]:
    return await core.sources.list(caller, page=page, limit=limit, state=in_state)


@get("/source", tags=_TAGS, summary="Find a source by id, name or any spelling of its URL")
async def find_source(core: TheCore, caller: Asker, ref: Annotated[str, QueryParameter(max_length=10_000)]) -> Source:
    return await core.sources.show(caller, ref)


@get("/sources/{id:str}", tags=_TAGS, summary="Show a source")
async def show_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    return await core.sources.show(caller, id)


@patch("/sources/{id:str}", tags=_TAGS, summary="Change a source's URL, visibility, labels or settings")
async def update_source(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[SourceEdit]) -> Source:
    labels = None if data.labels is None else tuple(data.labels)
    return await core.sources.update(
        caller, id, url=data.url, visibility=data.visibility, labels=labels, settings=data.settings
    )


@delete("/sources/{id:str}", tags=_TAGS, summary="Remove a source, its mirror and its index")
async def remove_source(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.sources.remove(caller, id)


@post("/sources/{id:str}/fetch", tags=_TAGS, status_code=202, summary="Fetch now")
async def fetch_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    return await core.sources.fetch(caller, id)


@post(
    "/sources/{id:str}/accept", tags=_TAGS, status_code=202, summary="Follow the upstream into the loss it asks about"
)
async def accept_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    return await core.sources.accept(caller, id)


@post("/sources/{id:str}/reindex", tags=_TAGS, status_code=202, summary="Build its index anew")
async def reindex_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    source = await core.sources.show(caller, id)
    await core.search.reindex(caller, source.id)
    return source


@get("/sources/{id:str}/wait", tags=_TAGS, summary="Wait until the source is searchable or failing")
async def wait_source(
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    looked_after: Annotated[float, QueryParameter(ge=0, description="only a look after this time counts")] = 0.0,
    timeout: Annotated[float, QueryParameter(ge=0, le=60, description="seconds")] = 30.0,
) -> Waited:
    source, settled = await core.sources.wait(caller, id, looked_after=looked_after, timeout=timeout)
    return Waited(source, settled)


@get("/sources/{id:str}/changes", tags=_TAGS, summary="What moved, newest first")
async def list_changes(
    core: TheCore, caller: Asker, id: FromPath[str], page: PageToken = "", limit: Limit = 100
) -> Page[Change]:
    return await core.sources.changes(caller, id, page=page, limit=limit)


@get("/sources/{id:str}/tree", tags=_TAGS, summary="List a folder")
async def show_tree(core: TheCore, caller: Asker, id: FromPath[str], path: TreePath = "", rev: Rev = "") -> Tree:
    return await core.gather.tree(caller, id, path, rev)


@get("/sources/{id:str}/file", tags=_TAGS, summary="Show a file")
async def show_file(core: TheCore, caller: Asker, id: FromPath[str], path: TreePath, rev: Rev = "") -> FileView:
    return await core.gather.file(caller, id, path, rev)


HANDLERS = [
    add_source,
    list_sources,
    find_source,
    show_source,
    update_source,
    remove_source,
    fetch_source,
    accept_source,
    reindex_source,
    wait_source,
    list_changes,
    show_tree,
    show_file,
]
