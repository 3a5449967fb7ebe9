"""Saved searches."""

from litestar import delete, get, put
from litestar.params import FromPath, JSONBody

from skep.doors.http.given import Asker, TheCore
from skep.model.saved import SavedSearch, Searches, SearchSpec

_TAGS = ["search"]


@get("/searches", tags=_TAGS, summary="Saved searches of the caller")
async def list_searches(core: TheCore, caller: Asker) -> Searches:
    return Searches(await core.searches.list(caller))


@put("/searches/{name:str}", tags=_TAGS, summary="Save a search; what newly matches is told on its topic")
async def save_search(core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[SearchSpec]) -> SavedSearch:
    return await core.searches.save(caller, name, data)


@delete("/searches/{name:str}", tags=_TAGS, summary="Remove a saved search")
async def remove_search(core: TheCore, caller: Asker, name: FromPath[str]) -> None:
    await core.searches.remove(caller, name)


HANDLERS = [list_searches, save_search, remove_search]
