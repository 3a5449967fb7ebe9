"""The OpenAPI schema as we mean it: our one error shape, and short names."""

from typing import Any

import msgspec

from skep.model.answers import ErrorAnswer

_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")


def tidy(made: dict[str, Any]) -> dict[str, Any]:
    """What Litestar made, with its own error shape replaced by ours."""
    _, errors = msgspec.json.schema_components([ErrorAnswer], ref_template=_REF + "{name}")
    made["components"]["schemas"] |= errors
    answer = {"description": "an error", "content": {"application/json": {"schema": {"$ref": _REF + "ErrorAnswer"}}}}
    for item in made["paths"].values():
        for method in _METHODS:
            if method in item:
                fine = {status: one for status, one in item[method]["responses"].items() if status < "400"}
                item[method]["responses"] = fine | {"default": answer}
    return _renamed(made)


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    """`Page_skep.model.source.Source_` -> `SourcePage`."""
    text = msgspec.json.encode(schema).decode()
    for name in schema["components"]["schemas"]:
        if "." in name:
            outer, _, inner = name.partition("_")
            text = text.replace(f'"{name}"', f'"{_short(outer, inner)}"').replace(
                f"/{name}", f"/{_short(outer, inner)}"
            )
    renamed: dict[str, Any] = msgspec.json.decode(text)
    return renamed


def _short(outer: str, inner: str) -> str:
    return inner.rstrip("_").rpartition(".")[2] + outer
