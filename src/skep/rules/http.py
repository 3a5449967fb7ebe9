"""Rules: create, list, show, update, remove, fire."""

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath, JSONBody

from skep.base.answers import Page
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore
from skep.rules.api import Rule, RuleEdit, RuleSpec
from skep.tasks.model import Context

TAG = "rules"


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    #: id, name or URL; a rule of the clock needs none
    source: str = ""


@post("/rules", summary="Make a rule; it is about what changes from now on")
async def create_rule(core: TheCore, caller: Asker, data: JSONBody[RuleSpec]) -> Rule:
    return await core.rules.create(caller, data)


@get("/rules", summary="List rules, each with what it fired last")
async def list_rules(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[Rule]:
    return await core.rules.list(caller, page=page, limit=limit)


@get("/rules/{name:str}", summary="Show a rule")
async def show_rule(core: TheCore, caller: Asker, name: FromPath[str]) -> Rule:
    return await core.rules.show(caller, name)


@patch("/rules/{name:str}", summary="Change a rule; what is not given stays")
async def update_rule(core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[RuleEdit]) -> Rule:
    return await core.rules.update(caller, name, data)


@delete("/rules/{name:str}", summary="Remove a rule; contexts it has made stay")
async def remove_rule(core: TheCore, caller: Asker, name: FromPath[str]) -> None:
    await core.rules.remove(caller, name)


@post("/rules/{name:str}/fire", summary="Fire a rule now, for the newest commit of a source")
async def fire_rule(core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[Trial]) -> Context:
    return await core.rules.fire(caller, name, data.source)
