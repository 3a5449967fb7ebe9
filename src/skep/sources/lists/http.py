"""Lists: add, list, show, entries, problems, read, confirm, remove."""

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.base.answers import Page
from skep.base.caller import Visibility
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore
from skep.sources.model import ListedSource, ListProblem, SourceList

TAG = "lists"


class NewList(msgspec.Struct, forbid_unknown_fields=True):
    #: of a git repository, or github:ORG, gitlab:GROUP, gitee:ORG, gitea:https://HOST/ORG, manifest:URL
    url: str
    visibility: Visibility = "public"
    #: what an organisation holds counts too
    forks: bool = True
    archived: bool = True


class Confirmation(msgspec.Struct, forbid_unknown_fields=True):
    #: of the list, as it was shown
    version: str


@post("/lists", summary="Follow a list; one that is known already is answered as it is")
async def add_list(core: TheCore, caller: Asker, data: JSONBody[NewList]) -> SourceList:
    return await core.lists.add(caller, data.url, visibility=data.visibility, forks=data.forks, archived=data.archived)


@get("/lists", summary="All lists")
async def list_lists(core: TheCore, caller: Asker) -> Page[SourceList]:
    return Page(await core.lists.list(caller), "")


@get("/lists/{id:str}", summary="Show a list")
async def show_list(core: TheCore, caller: Asker, id: FromPath[str]) -> SourceList:
    return await core.lists.show(caller, id)


@get("/lists/{id:str}/entries", summary="What a list names")
async def list_entries(
    core: TheCore,
    caller: Asker,
    id: FromPath[str],
    page: PageToken = "",
    limit: Limit = 100,
    gone: Annotated[bool, QueryParameter(description="what is no longer in it and waits to be removed")] = False,
) -> Page[ListedSource]:
    return await core.lists.entries(caller, id, page=page, limit=limit, gone=gone)


@get("/lists/{id:str}/problems", summary="What could not be read, with file and line")
async def list_problems(core: TheCore, caller: Asker, id: FromPath[str]) -> Page[ListProblem]:
    return Page(await core.lists.problems(caller, id), "")


@post("/lists/{id:str}/read", status_code=202, summary="Read it now")
async def read_list(core: TheCore, caller: Asker, id: FromPath[str]) -> SourceList:
    return await core.lists.read(caller, id)


@post("/lists/{id:str}/confirm", status_code=202, summary="Let it remove what waits")
async def confirm_list(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[Confirmation]) -> SourceList:
    return await core.lists.confirm(caller, id, data.version)


@delete("/lists/{id:str}", summary="Follow it no longer; what only it has named is removed")
async def remove_list(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.lists.remove(caller, id)
