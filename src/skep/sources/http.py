"""Sources: add, list, show, update, fetch, accept, wait, changes, tree, file, remove."""

from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.base.answers import Added, BulkAnswer, Fetching, FileView, Page, ReportAnswer, Tree, Waited
from skep.base.caller import Caller, Visibility
from skep.interfaces.core import Core
from skep.interfaces.http.decoding import Pieces
from skep.interfaces.http.dependencies import Asker, InState, Limit, PageToken, TheCore
from skep.sources.model import Change, Source
from skep.sources.service import MOST, BulkSource

TAG = "sources"
BULK_LIMIT = 25_000_000
Rev = Annotated[str, QueryParameter(description="branch, tag or commit; empty: the default branch", max_length=1000)]
TreePath = Annotated[str, QueryParameter(description="path from the root of the repository", max_length=10_000)]


Commit = Annotated[str, QueryParameter(description="until this commit is searchable", max_length=64)]
OfCommit = Annotated[str, QueryParameter(description="the beginning of its id; empty: the newest", max_length=64)]
Timeout = Annotated[float, QueryParameter(ge=0, le=60, description="seconds")]


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


class FetchOrder(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    #: of a source that is not known yet
    visibility: Visibility = "public"
    wait: bool = False
    commit: str = ""
    timeout: Annotated[float, msgspec.Meta(ge=0, le=60)] = 30.0


class Bulk(msgspec.Struct, forbid_unknown_fields=True):
    sources: Annotated[list[BulkSource], msgspec.Meta(max_length=MOST)]


@post("/sources", summary="Add a source; one that is known already is answered with 200")
async def add_source(core: TheCore, caller: Asker, data: JSONBody[NewSource]) -> Response[Added]:
    added = await core.sources.add(
        caller, data.url, kind=data.kind, visibility=data.visibility, labels=tuple(data.labels)
    )
    return Response(added, status_code=201 if added.created else 200)


@post(
    "/sources/bulk",
    status_code=200,
    request_max_body_size=BULK_LIMIT,
    pieces=Pieces("sources", BulkSource, MOST),
    summary="Add and update many; each URL has its own status",
)
async def bulk_sources(core: TheCore, caller: Asker, data: JSONBody[Bulk]) -> BulkAnswer:
    return BulkAnswer(await core.bulk.take(caller, data.sources))


@get("/sources", summary="List sources")
async def list_sources(
    core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100, in_state: InState = None
) -> Page[Source]:
    return await core.sources.list(caller, page=page, limit=limit, state=in_state)


@get("/source", summary="Find a source by id, name or any spelling of its URL")
async def find_source(core: TheCore, caller: Asker, ref: Annotated[str, QueryParameter(max_length=10_000)]) -> Source:
    return await core.sources.show(caller, ref)


@get("/sources/{id:str}", summary="Show a source")
async def show_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    return await core.sources.show(caller, id)


@patch("/sources/{id:str}", summary="Change a source's URL, visibility, labels or settings")
async def update_source(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[SourceEdit]) -> Source:
    labels = None if data.labels is None else tuple(data.labels)
    return await core.sources.update(
        caller, id, url=data.url, visibility=data.visibility, labels=labels, settings=data.settings
    )


@delete("/sources/{id:str}", summary="Remove a source, its mirror and its index")
async def remove_source(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.sources.remove(caller, id)


@post("/sources/{id:str}/fetch", status_code=202, summary="Fetch now, and wait for it if asked")
async def fetch_source(
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    wait: Annotated[bool, QueryParameter(description="answer when it is searchable or failing")] = False,
    commit: Commit = "",
    timeout: Timeout = 30.0,
) -> Fetching:
    asked = await core.sources.fetch(caller, id)
    return await _awaited(core, caller, asked, commit, timeout) if wait else asked


@post("/fetch", status_code=202, summary="Fetch a URL now; one that is not known yet is added")
async def fetch_url(core: TheCore, caller: Asker, data: JSONBody[FetchOrder]) -> Fetching:
    asked = await core.sources.fetch_url(caller, data.url, visibility=data.visibility)
    return await _awaited(core, caller, asked, data.commit, data.timeout) if data.wait else asked


async def _awaited(core: Core, caller: Caller, asked: Fetching, commit: str, timeout: float) -> Fetching:
    done = await core.gather.wait(caller, asked.source.id, commit=commit, looked_after=asked.asked_at, timeout=timeout)
    return Fetching(done.source, asked.asked_at, done.settled)


@post("/sources/{id:str}/accept", status_code=202, summary="Follow the upstream into the loss it asks about")
async def accept_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    return await core.sources.accept(caller, id)


@post("/sources/{id:str}/reindex", status_code=202, summary="Build its index anew")
async def reindex_source(core: TheCore, caller: Asker, id: FromPath[str]) -> Source:
    source = await core.sources.show(caller, id)
    await core.search.reindex(caller, source.id)
    return source


@get("/sources/{id:str}/wait", summary="Wait until the source is searchable or failing")
async def wait_source(
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    looked_after: Annotated[float, QueryParameter(ge=0, description="only a look after this time counts")] = 0.0,
    commit: Commit = "",
    timeout: Timeout = 30.0,
) -> Waited:
    return await core.gather.wait(caller, id, commit=commit, looked_after=looked_after, timeout=timeout)


@get("/sources/{id:str}/changes", summary="What moved, newest first")
async def list_changes(
    core: TheCore, caller: Asker, id: FromPath[str], page: PageToken = "", limit: Limit = 100
) -> Page[Change]:
    return await core.sources.changes(caller, id, page=page, limit=limit)


@get("/sources/{id:str}/tree", summary="List a folder")
async def show_tree(core: TheCore, caller: Asker, id: FromPath[str], path: TreePath = "", rev: Rev = "") -> Tree:
    return await core.gather.tree(caller, id, path, rev)


@get("/sources/{id:str}/file", summary="Show a file")
async def show_file(core: TheCore, caller: Asker, id: FromPath[str], path: TreePath, rev: Rev = "") -> FileView:
    return await core.gather.file(caller, id, path, rev)


@get("/sources/{id:str}/report", summary="Languages, functions, licence and sizes of a source")
async def show_report(core: TheCore, caller: Asker, id: FromPath[str], commit: OfCommit = "") -> ReportAnswer:
    return await core.reports.show(caller, id, commit)
