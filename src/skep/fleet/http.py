"""Workers: what they offer and run, and which of them a selector chooses."""

import asyncio
from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.base.answers import MemberToken, NewMemberToken, TaskLoad, WorkerMatch, WorkerView
from skep.interfaces.http.dependencies import Asker, TheCore, TheSettings
from skep.rpc.connect import join_line

TAG = "workers"
Chosen = Annotated[str, QueryParameter(max_length=10_000, description="an expression over their facts")]
Label = Annotated[str, QueryParameter(max_length=200, description="of the workers; without it all of them")]


@get("/workers", summary="List workers with what they offer and run")
async def list_workers(core: TheCore, caller: Asker) -> list[WorkerView]:
    return await core.workers.list(caller)


@get("/workers/select", summary="Try a selector: which workers match, and why the others do not")
async def select_workers(core: TheCore, caller: Asker, selector: Chosen = "") -> list[WorkerMatch]:
    return await core.workers.select(caller, selector)


@get("/workers/load", summary="Tasks that wait for workers with a label, have one, and ended lately")
async def worker_load(core: TheCore, caller: Asker, label: Label = "") -> TaskLoad:
    return await core.workers.load(caller, label)


@post("/workers/{id:str}/drain", summary="Give what a worker holds to others", status_code=200)
async def drain_worker(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.workers.drain(caller, id)


@post("/workers/{id:str}/resume", summary="Drain a worker no further", status_code=200)
async def resume_worker(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.workers.drain(caller, id, on=False)


@delete("/workers/{id:str}", summary="Forget a worker that will not come back")
async def forget_worker(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.workers.forget(caller, id)


class MemberTokenOrder(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    #: worker, manager or both
    roles: tuple[str, ...] = ("worker",)
    #: many members may use it
    shared: bool = False
    #: seconds; without it the token is good until it is revoked
    expires_in: float | None = None


@post("/workers/tokens", summary="Make a token that a worker or manager joins with; it is shown this once")
async def create_member_token(
    core: TheCore, caller: Asker, settings: TheSettings, data: JSONBody[MemberTokenOrder]
) -> NewMemberToken:
    made = await core.fleet.tokens.create(caller, data.name, data.roles, shared=data.shared, expires_in=data.expires_in)
    return msgspec.structs.replace(made, join=await asyncio.to_thread(join_line, settings, made.token))


@get("/workers/tokens", summary="List the tokens that members join with")
async def list_member_tokens(core: TheCore, caller: Asker) -> list[MemberToken]:
    return await core.fleet.tokens.list(caller)


@delete("/workers/tokens/{id:str}", summary="Revoke a token; whoever joined with it is cut off at once")
async def revoke_member_token(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.fleet.tokens.revoke(caller, id)
