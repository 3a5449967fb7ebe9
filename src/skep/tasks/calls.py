"""What a running task asks of its context: checkpoints, latches, state, more tasks. Kept in the space `context:ID`.

A checkpoint is set once, a latch counts down to 0, a key of the state is whatever was set last. Only an attempt that is
still the task's own may ask.
"""

from typing import Any

import msgspec

from skep.engines.db.base import Database, Tx, one_row
from skep.errors import BadInput, Conflict, NotFound
from skep.model.caller import SYSTEM
from skep.model.space import Typed
from skep.model.task import Call, TaskSpec
from skep.spaces import store
from skep.spaces.service import Spaces
from skep.tasks.contexts import Contexts
from skep.tasks.storing import space_of
from skep.tasks.tables import ACTIVE_SQL, spec_of

_ANY_TEXT, _ANY_COUNT = Typed("str"), Typed("int")
_OWN = f"SELECT context, spec FROM task WHERE id = :id AND attempt = :attempt AND worker = :worker AND {ACTIVE_SQL}"  # noqa: S608


class Calls:
    def __init__(self, db: Database, spaces: Spaces, contexts: Contexts) -> None:
        self._db = db
        self._spaces = spaces
        self._contexts = contexts

    async def answer(self, member: str, call: Call) -> dict[str, Any]:
        context = await self._context(member, call)
        space = space_of(context)
        match call.verb:
            case "checkpoint.set":
                await self._db.write(lambda tx: _set_once(tx, space, call.name, _packed(call)))
                return {}
            case "checkpoint.get":
                return await self._value(space, "checkpoint", call)
            case "state.set":
                fields = ("state", call.name, _packed(call))
                await self._spaces.replace(SYSTEM, space, ("state", call.name, _ANY_TEXT), fields)
                return {}
            case "state.get":
                return await self._value(space, "state", call)
            case "latch.set":
                return {"count": await self._db.write(lambda tx: _set_latch(tx, space, call.name, _count(call)))}
            case "latch.down":
                return {"count": await self._db.write(lambda tx: _down(tx, space, call.name))}
            case "latch.get":
                return await self._latch(space, call)
            case "task.add":
                return {"id": (await self._contexts.add(SYSTEM, context, [_spec(call)]))[0]}
            case _:
                raise NotFound(f"a task cannot ask for {call.verb!r}")

    async def doing(self, member: str, task: str, attempt: int) -> TaskSpec:
        """What the member was given; of nothing else may it ask."""
        rows = await self._db.read(_OWN, id=task, attempt=attempt, worker=member)
        return spec_of(rows[0]) if rows else TaskSpec(kind="")

    async def is_part(self, member: str, context: str) -> bool:
        """It was given a task of this context, and has not ended it."""
        sql = f"SELECT id FROM task WHERE context = :context AND worker = :worker AND {ACTIVE_SQL} LIMIT 1"  # noqa: S608
        return bool(await self._db.read(sql, context=context, worker=member))

    async def _context(self, member: str, call: Call) -> str:
        rows = await self._db.read(_OWN, id=call.task, attempt=call.attempt, worker=member)
        over = Conflict(f"attempt {call.attempt} of task {call.task} is over", hint="another one may be running")
        return str(one_row(rows, over)["context"])

    async def _value(self, space: str, noun: str, call: Call) -> dict[str, Any]:
        found = await self._spaces.query(SYSTEM, space, (noun, call.name, _ANY_TEXT), wait=call.wait)
        return {"set": found is not None, "value": msgspec.json.decode(str(found.fields[2])) if found else None}

    async def _latch(self, space: str, call: Call) -> dict[str, Any]:
        if call.wait:
            await self._spaces.query(SYSTEM, space, ("latch", call.name, 0), wait=call.wait)
        found = await self._spaces.query(SYSTEM, space, ("latch", call.name, _ANY_COUNT))
        return {"count": found.fields[2] if found else None}


async def _set_once(tx: Tx, space: str, name: str, value: str) -> None:
    await store.numbers(tx, space, 0)  # two at once must not both find nothing
    found = await store.first(tx, space, ("checkpoint", name, _ANY_TEXT))
    if found is None:
        await store.put(tx, space, ("checkpoint", name, value))
    elif found.fields[2] != value:
        raise Conflict(f"checkpoint {name!r} is set already, to something else", hint="a checkpoint is set once")


async def _set_latch(tx: Tx, space: str, name: str, count: int) -> int:
    await store.replace(tx, space, ("latch", name, _ANY_COUNT), ("latch", name, count))
    return count


async def _down(tx: Tx, space: str, name: str) -> int:
    await store.numbers(tx, space, 0)
    found = await store.first(tx, space, ("latch", name, _ANY_COUNT))
    if found is None:
        raise Conflict(f"latch {name!r} was never set", hint="set its count first")
    return await _set_latch(tx, space, name, max(0, int(found.fields[2]) - 1))


def _packed(call: Call) -> str:
    if not isinstance(call.value, dict) or "value" not in call.value:
        raise BadInput('the body should be {"value": …}')
    return msgspec.json.encode(call.value["value"]).decode()


def _count(call: Call) -> int:
    count = call.value.get("count") if isinstance(call.value, dict) else None
    if type(count) is not int or not 0 <= count < 2**31:
        raise BadInput('the body should be {"count": N}, N being 0 or more')
    return count


def _spec(call: Call) -> TaskSpec:
    try:
        return msgspec.convert(call.value, TaskSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"this is no task: {error}", hint="docs/tasks.md lists the fields") from None
