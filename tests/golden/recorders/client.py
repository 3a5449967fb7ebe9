"""What people write against: the client, and what programs inside a task import."""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import skep.benchmark
import skep.client
import skep.task

from ..lines import line
from .types import modules, name_of, signature_of

_SPECIAL = (
    *("__init__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__aiter__"),
    *("__anext__", "__getitem__", "__setitem__", "__contains__", "__getattr__", "__call__", "__len__"),
)


def record() -> Iterator[str]:
    for module in (skep.client, skep.task, skep.benchmark):
        exported = getattr(module, "__all__", None) or [name for name, _ in _own(module)]
        yield from (line(module.__name__, "exports", name, "yes") for name in exported)
        yield from _members(module.__name__, [(name, getattr(module, name)) for name in exported])
    for module in modules():
        if module.__name__.startswith("skep.client."):
            yield from _members("skep.client", _own(module))


def _own(module: ModuleType) -> list[tuple[str, Any]]:
    """Public, and defined there."""
    found = [(name, one) for name, one in vars(module).items() if not name.startswith("_")]
    return [(name, one) for name, one in found if getattr(one, "__module__", "") == module.__name__]


def _members(shown: str, members: list[tuple[str, Any]]) -> Iterator[str]:
    for name, one in members:
        if inspect.isclass(one):
            yield from _class_lines(one, shown, name)
        elif callable(one):
            yield line(shown, name, _kind(one) + signature_of(one))
        else:
            yield line(shown, name, type(one).__name__)


def _class_lines(kind: type, *where: str) -> Iterator[str]:
    yield line(*where, "bases", " ".join(base.__name__ for base in kind.__bases__))
    for name, annotation in vars(kind).get("__annotations__", {}).items():
        if not name.startswith("_"):
            yield line(*where, name, f"attribute {name_of(annotation)}")
    for name, one in sorted(vars(kind).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(one, property):
            yield line(*where, name, f"property {signature_of(one.fget)}")
        elif isinstance(one, classmethod | staticmethod):
            yield line(*where, name, f"{type(one).__name__} {signature_of(one.__func__)}")
        elif inspect.isfunction(one):
            yield line(*where, name, _kind(one) + signature_of(one))
    for name, text in _attributes(kind):
        yield line(*where, name, f"made in __init__: {text}")


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Public attributes that every object has: `self.sources = Sources(...)`."""
    init = vars(kind).get("__init__")
    if not inspect.isfunction(init) or init.__code__.co_filename == "<string>":
        return
    source = inspect.getsource(init)
    for name in dict.fromkeys(one for one in init.__code__.co_names if not one.startswith("_")):
        if (mark := f"self.{name} = ") in source:
            value = source.split(mark, 1)[1].split("(", 1)[0].split("\n", 1)[0].strip()
            yield name, value if value.isidentifier() and value[0].isupper() else "value"


def _kind(one: Any) -> str:
    if inspect.iscoroutinefunction(one):
        return "async "
    return "async iterator " if inspect.isasyncgenfunction(one) else ""
