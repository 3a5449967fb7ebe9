"""The verbs of the audit log, from the code (every call that writes a line) and from what the scene did."""

import ast
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import skep
from skep.access.audit import note

from ..lines import line
from ..scene import Scene

#: `note(tx, now, caller, verb, what)`
_ARGUMENTS = list(inspect.signature(note).parameters)
_WRITES = note.__name__
_VERB = 3


def record() -> Iterator[str]:
    yield line("written with", " ".join(_ARGUMENTS))
    for path in sorted(Path(skep.__file__).parent.rglob("*.py")):
        for verb in _verbs(ast.parse(path.read_text(encoding="utf-8"))):
            yield line("written by the code", verb, "yes")


def _verbs(tree: ast.Module) -> Iterator[str]:
    """Verbs given to `note`, and verbs given to a function that hands them on to it."""
    handing: dict[str, int] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [one.arg for one in function.args.args]
            given = [one.args[_VERB] for one in _calls(function, _WRITES) if len(one.args) == len(_ARGUMENTS)]
            for one in given:
                if isinstance(one, ast.Name) and one.id in names:
                    handing[function.name] = names.index(one.id)
    for call in _calls(tree, _WRITES):
        if len(call.args) == len(_ARGUMENTS):
            yield from _texts(call.args[_VERB])
    for name, place in handing.items():
        for call in _calls(tree, name):
            at = place - (1 if isinstance(call.func, ast.Attribute) else 0)
            for one in [*call.args[at : at + 1], *(more.value for more in call.keywords)]:
                yield from (text for text in _texts(one) if "." in text)


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for one in ast.walk(tree):
        if isinstance(one, ast.Call):
            called = one.func.id if isinstance(one.func, ast.Name) else getattr(one.func, "attr", "")
            if called == name:
                yield one


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in value.values)


async def seen(scene: Scene) -> AsyncIterator[str]:
    verbs: set[tuple[str, str]] = set()
    async with scene.http(scene.admin) as client:
        page = ""
        while True:
            answer = (await client.get("/api/v1/audit", params={"limit": 1000, "page": page})).json()
            verbs |= {(one["verb"], " ".join(one)) for one in answer["items"]}
            page = answer["next_page"]
            if not page:
                break
    for verb, fields in sorted(verbs):
        yield line("written by the scene", verb, fields)
