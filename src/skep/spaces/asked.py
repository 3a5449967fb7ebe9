"""Requests that come over the link: a member is Skep's own, and what it takes is released when it goes."""

from skep.model.caller import SYSTEM
from skep.model.space import (
    Acknowledge,
    Found,
    Get,
    GiveBack,
    Got,
    Keep,
    Nothing,
    Placed,
    Put,
    Query,
    QueryAll,
    Replace,
    SpaceAnswer,
    SpaceAsk,
)
from skep.spaces.service import Spaces


async def answer(spaces: Spaces, taker: str, asked: SpaceAsk, again: bool) -> SpaceAnswer:
    match asked:
        case Put(space, fields, id):
            return Placed(await spaces.put(SYSTEM, space, fields, id))
        case Get(space, template, ticket, wait, lease):
            taken = await spaces.get(
                SYSTEM, space, template, wait=wait, lease=lease, taker=taker, ticket=ticket, again=again
            )
            return Got(taken) if taken else Nothing()
        case Query(space, template, wait):
            found = await spaces.query(SYSTEM, space, template, wait=wait)
            return Found((found,) if found else ())
        case QueryAll(space, template):
            return Found(tuple(await spaces.query_all(SYSTEM, space, template)))
        case Acknowledge(space, seq, ticket):
            await spaces.acknowledge(SYSTEM, space, seq, ticket, again=again)
        case GiveBack(space, seq, ticket):
            await spaces.give_back(SYSTEM, space, seq, ticket)
        case Keep(space, seq, ticket, lease):
            await spaces.keep(SYSTEM, space, seq, ticket, lease=lease, taker=taker)
        case Replace(space, template, fields):
            return Placed(await spaces.replace(SYSTEM, space, template, fields))
    return Nothing()
