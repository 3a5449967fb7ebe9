"""Member Nodes for operators, and why an object is or is not there."""

from typing import Annotated

import msgspec
from litestar import get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.dataone.api import IndexEdit, Indexing, MemberNode, MemberNodes, NodeEdit, Preview, Story
from skep.interfaces.http.dependencies import Asker, TheCore

TAG = "dataone"
Pid = Annotated[str, QueryParameter(min_length=1, max_length=800, description="an identifier or a series")]

Since = Annotated[
    float | None, QueryParameter(description="seconds since 1970; else from where the next harvest begins")
]


class Again(msgspec.Struct, forbid_unknown_fields=True):
    #: seconds since 1970: only what is newer; else everything
    since: float | None = None


class Replay(msgspec.Struct, forbid_unknown_fields=True):
    #: one object whatever its state; else all that are parked
    pid: str = ""


@get("/dataone/nodes", summary="Member Nodes, and how far each is harvested")
async def list_nodes(core: TheCore, caller: Asker) -> MemberNodes:
    return MemberNodes(await core.dataone.nodes.list(caller))


@get("/dataone/nodes/{id:str}", summary="One Member Node")
async def show_node(core: TheCore, caller: Asker, id: FromPath[str]) -> MemberNode:
    return await core.dataone.nodes.show(caller, id)


@post("/dataone/nodes/{id:str}/approve", summary="Harvest a node that registered itself", status_code=200)
async def approve_node(core: TheCore, caller: Asker, id: FromPath[str]) -> MemberNode:
    return await core.dataone.nodes.approve(caller, id)


@patch("/dataone/nodes/{id:str}", summary="Change its limits, pause it or go on; obeyed at once")
async def set_node(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[NodeEdit]) -> MemberNode:
    return await core.dataone.nodes.set(caller, id, data)


@post("/dataone/nodes/{id:str}/reconcile", summary="List it again, which finds what vanished", status_code=200)
async def reconcile_node(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[Again]) -> MemberNode:
    return await core.dataone.nodes.reconcile(caller, id, since=data.since)


@get("/dataone/nodes/{id:str}/preview", summary="What a harvest would bring; nothing is done")
async def preview_node(core: TheCore, caller: Asker, id: FromPath[str], since: Since = None) -> Preview:
    return await core.dataone.previews.show(caller, id, since=since)


@post("/dataone/nodes/{id:str}/replay", summary="Try again what is parked", status_code=200)
async def replay_node(core: TheCore, caller: Asker, id: FromPath[str], data: JSONBody[Replay]) -> MemberNode:
    return await core.dataone.nodes.replay(caller, id, data.pid)


@get("/dataone/explain", summary="The story of an object")
async def explain_object(core: TheCore, caller: Asker, pid: Pid) -> Story:
    return await core.dataone.store.explain(caller, pid)


@get("/dataone/index", summary="How many objects wait to be indexed")
async def show_index(core: TheCore, caller: Asker) -> Indexing:
    return await core.dataone.index.show(caller)


@patch("/dataone/index", summary="Begin or end bulk-load mode, in which nothing is indexed")
async def set_index(core: TheCore, caller: Asker, data: JSONBody[IndexEdit]) -> Indexing:
    return await core.dataone.index.bulk(caller, data.bulk)


@post("/dataone/index/audit", summary="Compare all objects with their records, and repair", status_code=200)
async def audit_index(core: TheCore, caller: Asker) -> Indexing:
    return await core.dataone.index.check(caller)
