"""Messages between processes: every struct that a frame or a tunnel can carry, with a filled example of each."""

import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from skep.rpc.connect import Join
from skep.rpc.messages import ASKS_LIMIT, FRAME_LIMIT, LOOKED_LIMIT, PROTOCOL, DownFrame, UpFrame
from skep.rpc.transfer import File
from skep.rpc.tunnel import Met, Pass, Shown
from skep.runtime.task_api import TaskCall

from ..lines import flat, line
from .types import struct_lines

#: an example that is nested deeper has no further members
_DEEP = 6


def record() -> Iterator[str]:
    limits = {"PROTOCOL": PROTOCOL, "FRAME_LIMIT": FRAME_LIMIT, "ASKS_LIMIT": ASKS_LIMIT, "LOOKED_LIMIT": LOOKED_LIMIT}
    for name, value in limits.items():
        yield line("limit", name, str(value))
    for way, frame in (("up", UpFrame), ("down", DownFrame)):
        for one in typing.get_args(typing.get_args(frame)[0]):
            yield line("frame", way, one.__name__, "yes")
    for kind in _reachable([UpFrame, DownFrame, Met, Shown, Join, File, Pass, TaskCall]):
        yield from struct_lines(kind, kind.__name__)
        example = _example(kind, kind.__name__, 0)
        wire = msgspec.msgpack.encode(example)
        assert msgspec.msgpack.decode(wire, type=kind) == example, kind
        yield from flat(_json(msgspec.msgpack.decode(wire)), kind.__name__, "on the wire")


def _reachable(kinds: list[Any]) -> list[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind in found:
                return
            found.add(kind)
            for hint in typing.get_type_hints(kind, include_extras=True).values():
                visit(hint)
        for one in typing.get_args(kind):
            visit(one)

    for kind in kinds:
        visit(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def _example(kind: Any, name: str, depth: int) -> Any:
    """One value of a type. Of a union the first is shown; every struct has an example of its own."""
    info = kind if isinstance(kind, msgspec.inspect.Type) else msgspec.inspect.type_info(kind)
    match info:
        case msgspec.inspect.Metadata():
            return _example(info.type, name, depth)
        case msgspec.inspect.StructType():
            fields = msgspec.structs.fields(info.cls)
            return info.cls(**{one.name: _example(one.type, one.name, depth + 1) for one in fields})
        case msgspec.inspect.UnionType():
            known = [one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)]
            return None if depth > _DEEP and len(known) < len(info.types) else _example(known[0], name, depth + 1)
        case msgspec.inspect.LiteralType():
            return info.values[-1]
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType() | msgspec.inspect.FrozenSetType():
            items = [] if depth > _DEEP else [_example(info.item_type, name, depth + 1)]
            made = {msgspec.inspect.ListType: list, msgspec.inspect.FrozenSetType: frozenset}
            return made.get(type(info), tuple)(items)
        case msgspec.inspect.TupleType():
            return tuple(_example(one, name, depth + 1) for one in info.item_types)
        case msgspec.inspect.DictType():
            return {_example(info.key_type, name, depth): _example(info.value_type, name, depth + 1)}
        case _:
            return _scalar(info, name)


def _scalar(info: msgspec.inspect.Type, name: str) -> Any:
    match info:
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return int(info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else 7)
        case msgspec.inspect.FloatType():
            return 1.5
        case msgspec.inspect.BytesType():
            return b"bytes"
        case msgspec.inspect.RawType():
            return msgspec.Raw(b"\x01")
        case msgspec.inspect.AnyType():
            return {"any": [1, None]}
        case msgspec.inspect.NoneType():
            return None
        case _:
            return f"a {name}"


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    if isinstance(value, dict):
        return {str(key): _json(one) for key, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, list) else value
