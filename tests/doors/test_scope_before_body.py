"""A route that needs a scope answers 401 or 403 before it reads the body."""

import re
from typing import Any

import pytest
from litestar import Litestar, post

from skep.dataone import node_api
from skep.interfaces.http.scopes import NEEDED, check_table

from .asgi_calls import Body, send_request
from .conftest import Door, OpenDoor

_UNSAFE = ("post", "put", "patch", "delete")
#: what the paths of the schema leave open
MORE = {("POST", "/cn/v2/query/solr"), ("GET", "/consumer/consume"), ("GET", "/size")}
_FILLED = re.compile(r"\{\w+\}")


def concrete(path: str) -> str:
    return _FILLED.sub("x", path)


async def documented(door: Door) -> set[tuple[str, str]]:
    async with door.client() as client:
        schema: dict[str, Any] = (await client.get("/api/v1/schema/openapi.json")).json()
    return {(method.upper(), path) for path, item in schema["paths"].items() for method in _UNSAFE if method in item}


def of_nodes() -> set[tuple[str, str]]:
    """POST and PUT of the Coordinating Node, and of the Member Node where copies are held."""
    here = {(method, f"/cn/v2/{word}") for method, word in node_api.CALLS if method != "GET"}
    return here | {(method, f"/mn/v2/{word}") for method, word in node_api.MEMBER_CALLS if method != "GET"}


async def test_every_route_that_needs_a_scope_without_token_answers_401_and_reads_no_body(open_door: OpenDoor) -> None:
    async with open_door(open_read=False, dataone_copies_for="http://127.0.0.1:1/cn") as door:
        table = {route for route, scope in NEEDED.items() if scope is not None}
        opened = {route for route, scope in NEEDED.items() if scope is None}
        wanted = sorted((await documented(door) | table | of_nodes() | MORE) - opened)
        assert len(wanted) > 100
        wrong = {}
        for method, path in wanted:
            body = Body()
            answer = await send_request(door, method, concrete(path), body, content_length="100000000")
            if answer.status != 401 or body.reads:
                wrong[method, path] = answer.status, body.reads
        assert wrong == {}


async def test_every_route_that_needs_write_with_a_token_to_read_answers_403_and_reads_no_body(door: Door) -> None:
    token = await door.token("read")
    wrong = {}
    for (method, path), scope in NEEDED.items():
        if scope in ("write", "admin"):
            body = Body()
            answer = await send_request(door, method, concrete(path), body, token)
            if answer.status != 403 or body.reads:
                wrong[method, path] = answer.status, body.reads
    assert wrong == {}


def test_a_route_without_an_entry_in_the_table_stops_the_start() -> None:
    @post("/unlisted")
    async def unlisted() -> None: ...

    with pytest.raises(RuntimeError, match="POST /unlisted"):
        check_table(Litestar([unlisted]), {})


def test_an_entry_without_a_route_stops_the_start() -> None:
    with pytest.raises(RuntimeError, match="PUT /nowhere"):
        check_table(Litestar([]), {("PUT", "/nowhere"): "write"})
