"""Spaces: put, take and look at tuples. Who hangs up while waiting takes nothing along."""

from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from skep.base.answers import Page
from skep.base.loops import racing
from skep.interfaces.http.asgi import left
from skep.interfaces.http.dependencies import Asked, Asker, Limit, PageToken, TheCore
from skep.spaces.api import Fields, FoundAnswer, GotAnswer, PlacedAnswer, SpaceInfo, Template

T = TypeVar("T")
TAG = "spaces"
_PATH = "/spaces/{space:str}"
#: a tuple of the largest size, and what JSON adds to it
_BODY_LIMIT = 4 << 20
#: who takes over HTTP may be anywhere: only time tells that it is gone
_TAKER = "http"

Wait = Annotated[float, msgspec.Meta(ge=0, le=60, description="seconds to wait when there is no match yet")]
Lease = Annotated[float, msgspec.Meta(gt=0, le=86_400, description="seconds until others may take it")]
Text = Annotated[str, msgspec.Meta(max_length=200)]


class PutOrder(msgspec.Struct, forbid_unknown_fields=True):
    fields: Fields
    #: a second put with the id of a tuple that is there is that tuple
    id: Text = ""


class GetOrder(msgspec.Struct, forbid_unknown_fields=True):
    template: Template
    wait: Wait = 0.0
    lease: Lease = 60.0
    #: chosen by the client, new for every get: then a repeat of the request gets the same tuple
    ticket: Text = ""


class QueryOrder(msgspec.Struct, forbid_unknown_fields=True):
    template: Template
    wait: Wait = 0.0


class AllOrder(msgspec.Struct, forbid_unknown_fields=True):
    template: Template


class TakenOrder(msgspec.Struct, forbid_unknown_fields=True):
    seq: int
    ticket: Text


class KeepOrder(TakenOrder, forbid_unknown_fields=True):
    lease: Lease = 60.0


class ReplaceOrder(msgspec.Struct, forbid_unknown_fields=True):
    template: Template
    fields: Fields


@get("/spaces", summary="List spaces")
async def list_spaces(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[SpaceInfo]:
    return await core.spaces.list(caller, page=page, limit=limit)


@get(_PATH, summary="How many tuples a space has")
async def show_space(core: TheCore, caller: Asker, space: FromPath[str]) -> SpaceInfo:
    return await core.spaces.show(caller, space)


@delete(_PATH, summary="Remove a space and all that is in it")
async def drop_space(core: TheCore, caller: Asker, space: FromPath[str]) -> None:
    await core.spaces.drop(caller, space)


@post(_PATH + "/put", summary="Put a tuple; stored when it answers", request_max_body_size=_BODY_LIMIT)
async def put_tuple(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[PutOrder]) -> PlacedAnswer:
    return PlacedAnswer(await core.spaces.put(caller, space, data.fields, data.id))


@post(_PATH + "/replace", summary="Put a tuple in place of the oldest match", status_code=200)
async def replace_tuple(
    core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[ReplaceOrder]
) -> PlacedAnswer:
    return PlacedAnswer(await core.spaces.replace(caller, space, data.template, data.fields))


@post(_PATH + "/get", summary="Take the oldest match, waiting for one", status_code=200)
async def get_tuple(
    request: Asked, core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[GetOrder]
) -> GotAnswer:
    """Acknowledge it, give it back or keep it before its lease is over, with its `seq` and `ticket`."""
    taking = core.spaces.get(
        caller,
        space,
        data.template,
        wait=data.wait,
        lease=data.lease,
        taker=_TAKER,
        ticket=data.ticket,
        again=bool(data.ticket),
    )
    taken, left = await _while_there(request, taking)
    if taken and left:
        await core.spaces.give_back(caller, space, taken.seq, taken.ticket)
    return GotAnswer(None if left else taken)


@post(_PATH + "/query", summary="Look at the oldest match, waiting for one", status_code=200)
async def query_tuple(
    request: Asked, core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[QueryOrder]
) -> FoundAnswer:
    found, _ = await _while_there(request, core.spaces.query(caller, space, data.template, wait=data.wait))
    return FoundAnswer([found] if found else [])


@post(_PATH + "/get_all", summary="Remove every match at once", status_code=200)
async def get_all_tuples(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[AllOrder]) -> FoundAnswer:
    """Without a lease: what is in an answer that is lost is lost. At most 10,000."""
    return FoundAnswer(await core.spaces.get_all(caller, space, data.template))


@post(_PATH + "/query_all", summary="Look at every match", status_code=200)
async def query_all_tuples(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[AllOrder]) -> FoundAnswer:
    """The oldest 10,000."""
    return FoundAnswer(await core.spaces.query_all(caller, space, data.template))


@post(_PATH + "/acknowledge", summary="A taken tuple is done with, and gone", status_code=204)
async def acknowledge_tuple(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[TakenOrder]) -> None:
    await core.spaces.acknowledge(caller, space, data.seq, data.ticket)


@post(_PATH + "/give_back", summary="A taken tuple is there for others again", status_code=204)
async def give_back_tuple(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[TakenOrder]) -> None:
    await core.spaces.give_back(caller, space, data.seq, data.ticket)


@post(_PATH + "/keep", summary="A taken tuple is needed for longer", status_code=204)
async def keep_tuple(core: TheCore, caller: Asker, space: FromPath[str], data: JSONBody[KeepOrder]) -> None:
    await core.spaces.keep(caller, space, data.seq, data.ticket, lease=data.lease, taker=_TAKER)


async def _while_there(request: Asked, work: Coroutine[Any, Any, T | None]) -> tuple[T | None, bool]:
    """What `work` gives, unless the client hangs up or the server closes before; and whether the client has hung up."""
    async with racing(work, request.app.state.closing.wait(), left(request.receive)) as (doing, _, leaving):
        return doing.result() if doing.done() else None, leaving.done()
