"""The OpenAPI schema as we mean it: our one error shape, and short names."""

from typing import Any

import msgspec

from skep.doors.http.publish import Publication
from skep.doors.http.reading import Reading
from skep.doors.http.search import EVENTS as EVENT_STREAM
from skep.doors.http.search import LINES, PATH, Searching
from skep.doors.http.topics_wire import EVENT, EVENTS
from skep.model.answers import ErrorAnswer
from skep.model.search_answers import SearchAnswer
from skep.model.topic import Messages, PostedAnswer

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
