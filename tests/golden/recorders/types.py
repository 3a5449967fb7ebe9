"""Types as text, without the modules they come from: those move."""

import importlib
import inspect
import pkgutil
import re
import types as pytypes
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

import skep

from ..lines import line, quoted

_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")


def modules() -> Iterator[pytypes.ModuleType]:
    """Every module of the product."""
    for found in pkgutil.walk_packages(skep.__path__, "skep."):
        if ".testing" not in found.name and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def name_of(kind: Any) -> str:
    """`Page[Source] | None`, `Annotated[int, gt=0]`, `Literal["a", "b"]`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is None or kind is type(None):
        return "None"
    if isinstance(kind, str):
        return _MODULE.sub("", kind)
    if kind is Ellipsis:
        return "..."
    if isinstance(kind, list):
        return "[" + ", ".join(map(name_of, kind)) + "]"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(quoted, args))}]"
    if origin is typing.Annotated:
        return f"Annotated[{', '.join([name_of(args[0]), *map(_meta, args[1:])])}]"
    if origin in (typing.Union, pytypes.UnionType):
        return " | ".join(map(name_of, args))
    if origin is not None:
        shown = getattr(origin, "__name__", str(origin))
        return f"{shown}[{', '.join(map(name_of, args))}]" if args else shown
    if isinstance(kind, typing.ForwardRef):
        return _MODULE.sub("", kind.__forward_arg__)
    return getattr(kind, "__name__", None) or _MODULE.sub("", str(kind))


def _meta(one: Any) -> str:
    if isinstance(one, msgspec.Meta):
        bounds = {name: getattr(one, name) for name in _BOUNDS if getattr(one, name) is not None}
        return ", ".join(f"{name}={quoted(value)}" for name, value in bounds.items()) or "Meta"
    return type(one).__name__


def struct_lines(kind: type[msgspec.Struct], *where: str) -> Iterator[str]:
    config = kind.__struct_config__
    shape = {
        "tag": config.tag,
        "tag_field": config.tag_field,
        "array_like": config.array_like,
        "omit_defaults": config.omit_defaults,
        "forbid_unknown_fields": config.forbid_unknown_fields,
    }
    yield line(*where, "shape", " ".join(f"{name}={value}" for name, value in shape.items()))
    yield line(*where, "order", " ".join(kind.__struct_encode_fields__))
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        yield line(*where, "field", field.encode_name, f"{name_of(hints[field.name])} {_default(field)}")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"default {quoted(msgspec.to_builtins(value))}"


def signature_of(function: Any) -> str:
    """Parameters with annotations and defaults, and the answer."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(unknown)"
    parts, seen_star = [], False
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not seen_star:
            parts.append("*")
            seen_star = True
        seen_star = seen_star or one.kind is one.VAR_POSITIONAL
        mark = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        annotation = "" if one.annotation is one.empty else f": {name_of(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_value(one.default)}"
        parts.append(f"{mark}{one.name}{annotation}{default}")
    answer = "" if found.return_annotation is found.empty else f" -> {name_of(found.return_annotation)}"
    return f"({', '.join(parts)}){answer}"


def _value(value: object) -> str:
    """Plain values as they are; of others the type or the name: what they hold is the machine's."""
    if value is None or isinstance(value, str | int | float | bytes) or value == ():
        return repr(value)
    return f"<{getattr(value, '__name__', type(value).__name__)}>"
