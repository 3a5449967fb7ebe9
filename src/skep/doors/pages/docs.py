"""The API's documentation, from its own schema and without anything from elsewhere."""

from typing import Any

import msgspec
from litestar import Response, get

from skep.doors.http.given import Asked
from skep.doors.http.schema import tidy
from skep.doors.pages.render import page

_METHODS = ("get", "post", "put", "patch", "delete")


class Field(msgspec.Struct, frozen=True):
    name: str
    place: str
    type: str
    required: bool
    about: str


class Operation(msgspec.Struct, frozen=True):
    method: str
    path: str
    summary: str
    fields: list[Field]
    answers: list[tuple[str, str]]


@get("/docs")
async def docs_page(request: Asked) -> Response[bytes]:
    schema = tidy(request.app.openapi_schema.to_schema())
    return page(request, "docs.html", rooms=operations(schema))


def operations(schema: dict[str, Any]) -> dict[str, list[Operation]]:
    """By tag, in the order they were declared."""
    rooms: dict[str, list[Operation]] = {}
    for path, item in schema["paths"].items():
        for method in _METHODS:
            if (found := item.get(method)) is not None:
                tag = next(iter(found.get("tags", [])), "other")
                rooms.setdefault(tag, []).append(_operation(method, path, found, schema))
    return rooms


def _operation(method: str, path: str, found: dict[str, Any], schema: dict[str, Any]) -> Operation:
    fields = [
        Field(given["name"], given["in"], _type(given["schema"]), given.get("required", False), _about(given))
        for given in found.get("parameters", [])
    ]
    for body in found.get("requestBody", {}).get("content", {}).values():
        fields += _body_fields(_resolve(body["schema"], schema))
    answers = [
        (status, _answer(answer)) for status, answer in found.get("responses", {}).items() if status != "default"
    ]
    return Operation(method.upper(), path, found.get("summary", ""), fields, answers)


def _body_fields(body: dict[str, Any]) -> list[Field]:
    needed = body.get("required", [])
    return [
        Field(name, "body", _type(one), name in needed, _about(one)) for name, one in body.get("properties", {}).items()
    ]


def _resolve(one: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = one.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schema["components"]["schemas"].get(name, one)
    return found


def _answer(answer: dict[str, Any]) -> str:
    return next((_type(one["schema"]) for one in answer.get("content", {}).values() if "schema" in one), "nothing")


def _about(one: dict[str, Any]) -> str:
    return str(one.get("description") or one.get("schema", {}).get("description", ""))


def _type(one: dict[str, Any]) -> str:
    """A short name for a schema."""
    if "$ref" in one:
        return str(one["$ref"]).rpartition("/")[2]
    if "enum" in one:
        return " | ".join(str(value) for value in one["enum"] if value is not None)
    if parts := one.get("oneOf") or one.get("anyOf"):
        return " | ".join(_type(part) for part in parts if part.get("type") != "null")
    if one.get("type") == "array":
        return f"list of {_type(one.get('items', {}))}"
    bounds = [f"{sign} {one[name]:g}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in one]
    kinds = one.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    return " ".join([" | ".join(names), *bounds])
