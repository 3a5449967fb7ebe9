"""The OpenAPI schema as we mean it: our one error shape, and short names."""

from typing import Any

import msgspec
from litestar import Response, get

from skep.base.answers import ErrorAnswer
from skep.interfaces.http.dependencies import Asked
from skep.interfaces.web.render import page
from skep.search.api import SearchAnswer
from skep.search.http import EVENTS as EVENT_STREAM
from skep.search.http import LINES, PATH, Searching
from skep.topics.api import Messages, PostedAnswer
from skep.topics.messages_http import EVENT, EVENTS, Publication, Reading

_REF = "#/components/schemas/"
_TOPIC = {"name": "topic", "in": "path", "schema": {"type": "string"}, "required": True}
_METHODS = ("get", "post", "put", "patch", "delete")


def tidy(made: dict[str, Any]) -> dict[str, Any]:
    """What Litestar made, with our error shape instead of its own, and with the routes of which it knows nothing."""
    ours = [ErrorAnswer, Publication, PostedAnswer, Messages, SearchAnswer]
    _, shapes = msgspec.json.schema_components(ours, ref_template=_REF + "{name}")
    made["components"]["schemas"] |= shapes
    made["paths"]["/api/v1/topics/{topic}/messages"] = {"get": _read(), "post": _publish()}
    made["paths"][PATH] = {"get": _search()}
    answer = {"description": "an error", "content": {"application/json": {"schema": {"$ref": _REF + "ErrorAnswer"}}}}
    for item in made["paths"].values():
        for method in _METHODS:
            if method in item:
                fine = {status: one for status, one in item[method]["responses"].items() if status < "400"}
                item[method]["responses"] = fine | {"default": answer}
    return _renamed(made)


def _publish() -> dict[str, Any]:
    text = {"type": "string"}
    given = {"application/json": {"schema": {"$ref": _REF + "Publication"}}}
    events = {media: {"schema": {"description": "CloudEvents 1.0"}} for media in (EVENT, EVENTS)}
    plain = {"*/*": {"schema": {"type": "string", "format": "binary", "description": "one message, as it is"}}}
    stored = {"application/json": {"schema": {"$ref": _REF + "PostedAnswer"}}}
    return {
        "tags": ["topics"],
        "summary": "Publish one message or several; stored when it answers",
        "operationId": "Publish",
        "parameters": [
            _TOPIC,
            {"name": "key", "in": "query", "schema": text, "description": "of a message that is not JSON"},
            {"name": "partition", "in": "query", "schema": {"type": "integer", "minimum": 0}},
        ],
        "requestBody": {"content": given | events | plain, "required": True},
        "responses": {"201": {"description": "where they are stored", "content": stored}},
    }


def _read() -> dict[str, Any]:
    found = {"application/json": {"schema": {"$ref": _REF + "Messages"}}}
    events = {EVENTS: {"schema": {"type": "array", "items": {"description": "CloudEvents 1.0"}}}}
    return {
        "tags": ["topics"],
        "summary": "Read messages from an offset on",
        "operationId": "Read",
        "description": f"As CloudEvents with `Accept: {EVENTS}`.",
        "parameters": [_TOPIC, *_query(Reading)],
        "responses": {"200": {"description": "what is there", "content": found | events}},
    }


def _search() -> dict[str, Any]:
    found = {"application/json": {"schema": {"$ref": _REF + "SearchAnswer"}}}
    return {
        "tags": ["search"],
        "summary": "Search, best first; or as a stream, as they are found",
        "operationId": "Search",
        "parameters": _query(Searching),
        "responses": {
            "200": {"description": f"JSON; a stream where `{EVENT_STREAM}` or `{LINES}` is accepted", "content": found}
        },
    }


def _query(shape: type) -> list[dict[str, Any]]:
    made = msgspec.json.schema_components([shape])[1][shape.__name__]
    needed = made.get("required", ())
    return [
        {"name": name, "in": "query", "schema": field, "required": name in needed}
        for name, field in made["properties"].items()
    ]


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


# The API's documentation, from its own schema and without anything from elsewhere.

_DOCS_METHODS = ("get", "post", "put", "patch", "delete")


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
        for method in _DOCS_METHODS:
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
