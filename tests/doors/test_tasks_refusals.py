"""What is wrong with a request about tasks is said: which input, which place, what to do."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from .conftest import Door
from .topics_calls import wrong

API = "/api/v1"
NOOP = {"kind": "noop"}


@pytest.fixture
async def writer(door: Door) -> AsyncIterator[httpx.AsyncClient]:
    async with door.client(await door.token("read", "write")) as client:
        yield client


def needs(*names: str) -> list[dict[str, str]]:
    return [{"task": name} for name in names]


CONTEXTS: list[tuple[Any, str]] = [
    ({"name": "c"}, "without tasks"),
    ({"name": "c", "tasks": []}, "without tasks"),
    ({"tasks": [NOOP]}, "name"),
    ({"name": "", "tasks": [NOOP]}, "no name for a context"),
    ({"name": "<script>", "tasks": [NOOP]}, "no name for a context"),
    ({"name": "c", "tasks": [{"name": "a\nb", **NOOP}]}, "no name for a task"),
    ({"name": "c", "tasks": [{"name": "a", **NOOP}, {"name": "a", **NOOP}]}, "two tasks are called 'a'"),
    ({"name": "c", "tasks": [{"name": "a", "needs": needs("a"), **NOOP}]}, "circle: a"),
    (
        {
            "name": "c",
            "tasks": [{"name": "a", "needs": needs("b"), **NOOP}, {"name": "b", "needs": needs("a"), **NOOP}],
        },
        "circle: a, b",
    ),
    ({"name": "c", "tasks": [{"name": "a", "needs": needs("b"), **NOOP}]}, "'a' needs 'b'"),
    ({"name": "c", "tasks": [{"needs": [{"task": "b", "rule": "maybe"}], **NOOP}]}, "maybe"),
    ({"name": "c", "tasks": [{"template": "t"}]}, "no template 't'"),
    ({"name": "c", "tasks": [{}]}, "nothing to run"),
    ({"name": "c", "tasks": [{"argv": [""]}]}, "nothing to run"),
    ({"name": "c", "tasks": [{"argv": ["a\0b"]}]}, "zero byte"),
    ({"name": "c", "tasks": [{"argv": "ls -l"}]}, "argv"),
    ({"name": "c", "tasks": [{"argv": ["ls", 1]}]}, "argv"),
    ({"name": "c", "tasks": [{"argv": ["ls"], **NOOP}]}, "takes no argv"),
    ({"name": "c", "tasks": [{"retries": -1, **NOOP}]}, "retries"),
    ({"name": "c", "tasks": [{"retries": "many", **NOOP}]}, "retries"),
    ({"name": "c", "tasks": [{"lost_worker_retries": -1, **NOOP}]}, "lost_worker_retries"),
    ({"name": "c", "tasks": [{"lost_worker_retries": 101, **NOOP}]}, "lost_worker_retries"),
    ({"name": "c", "tasks": [{"at_most_once": "maybe", **NOOP}]}, "at_most_once"),
    ({"name": "c", "tasks": [{"at_most_once": True, "retries": 1, **NOOP}]}, "but retries is 1"),
    ({"name": "c", "tasks": [{"at_most_once": True, "lost_worker_retries": 5, **NOOP}]}, "lost_worker_retries is 5"),
    ({"name": "c", "tasks": [{"timeout": 0, **NOOP}]}, "timeout"),
    ({"name": "c", "tasks": [{"backoff": -1, **NOOP}]}, "backoff"),
    ({"name": "c", "tasks": [{"priority": 10**30, **NOOP}]}, "priority"),
    ({"name": "c", "tasks": [{"priority": 2**63, **NOOP}]}, "priority"),
    ({"name": "c", "tasks": [{"exclusive": "all", **NOOP}]}, "exclusive"),
    ({"name": "c", "tasks": [{"holder": True, **NOOP}]}, "names none"),
    ({"name": "c", "tasks": [{"limits": {"memory": "1GB"}, **NOOP}]}, "memory"),
    ({"name": "c", "tasks": [{"colour": "gold", **NOOP}]}, "colour"),
    ({"name": "c", "tasks": [NOOP], "colour": "gold"}, "colour"),
    ({"name": "c", "tasks": [{"properties": {"a": 1}, **NOOP}]}, "properties"),
    ({"name": "c", "together": True, "tasks": [{"name": "a", **NOOP}, {"needs": needs("a"), **NOOP}]}, "together"),
    ({"name": "c", "tasks": [{"selector": "cpu >= many", **NOOP}]}, "column 8"),
    ([], "object"),
    ("text", "object"),
    (None, ""),
]


async def test_contexts_that_are_none(writer: httpx.AsyncClient) -> None:
    for body, why in CONTEXTS:
        answer = await writer.post(f"{API}/contexts", json=body)
        assert wrong(answer) == (400, "bad_input"), body
        assert why in answer.json()["error"]["message"], (body, answer.text)
    assert (await writer.get(f"{API}/contexts")).json()["items"] == []


async def test_bodies_that_are_no_json_or_too_large(writer: httpx.AsyncClient) -> None:
    for body in (b"", b"{", b"\xff", b'{"name": "\xff"}', b"[" * 100_000):
        answer = await writer.post(f"{API}/contexts", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, (body[:20], answer.text)
    many = {"name": "many", "tasks": [{"name": f"t{n}", **NOOP} for n in range(100_001)]}
    answer = await writer.post(f"{API}/contexts", json=many)
    assert wrong(answer) == (400, "bad_input") and "at most 100,000" in answer.text
    large = {"name": "large", "description": "x" * 64_000_001, "tasks": [NOOP]}
    assert wrong(await writer.post(f"{API}/contexts", json=large)) == (413, "too_large")
    assert wrong(await writer.post(f"{API}/tasks", json={"argv": ["x" * 1_000_001]})) == (413, "too_large")


SELECTORS = [("cpu", 4), ("cpu >= ", 7), ('cpu >= "2"', 8), ("bees > 1", 1), ("cpu > 1 cpu", 9), ("(cpu > 1", 9)]


@pytest.mark.parametrize(("selector", "column"), SELECTORS)
async def test_selectors_that_cannot_be_read(writer: httpx.AsyncClient, selector: str, column: int) -> None:
    for answer in (
        await writer.get(f"{API}/workers/select", params={"selector": selector}),
        await writer.post(f"{API}/tasks", json={"selector": selector, **NOOP}),
    ):
        assert wrong(answer) == (400, "bad_input")
        assert answer.json()["error"]["column"] == column


async def test_long_selectors(writer: httpx.AsyncClient) -> None:
    for selector in ("x" * 2001, "(" * 100 + "cpu > 1" + ")" * 100, "not " * 100 + "cpu > 1"):
        assert wrong(await writer.get(f"{API}/workers/select", params={"selector": selector})) == (400, "bad_input")


async def test_what_is_not_there(writer: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "contexts/ctx_1"),
        ("GET", "contexts/ctx_1/wait"),
        ("POST", "contexts/ctx_1/cancel"),
        ("POST", "contexts/ctx_1/retry"),
        ("DELETE", "contexts/ctx_1"),
        ("GET", "tasks/tsk_1"),
        ("GET", "tasks/tsk_1/output"),
        ("GET", "tasks/tsk_1/output?follow=1"),
        ("POST", "tasks/tsk_1/cancel"),
        ("GET", "tasks/%00%ff"),
    ):
        assert wrong(await writer.request(method, f"{API}/{path}")) == (404, "not_found"), path
    answer = await writer.post(f"{API}/contexts/ctx_1/tasks", json={"tasks": [NOOP]})
    assert wrong(answer) == (404, "not_found")


async def test_parameters_that_make_no_sense(writer: httpx.AsyncClient) -> None:
    made = (await writer.post(f"{API}/tasks", json=NOOP)).json()
    for path in (
        "contexts?state=DONE",
        "contexts?limit=0",
        f"contexts/{made['context']['id']}?limit=5000",
        f"contexts/{made['context']['id']}/wait?seconds=-1",
        f"contexts/{made['context']['id']}/wait?seconds=nan",
        f"contexts/{made['context']['id']}/wait?seconds=1e9",
        "tasks?state=running",
        f"tasks/{made['task']}/output?after=x",
        f"tasks/{made['task']}/output?stream=stdin",
        f"tasks/{made['task']}/output?attempt=99999999999999999999",
    ):
        assert wrong(await writer.get(f"{API}/{path}")) == (400, "bad_input"), path
    output = f"{API}/tasks/{made['task']}/output?follow=1"
    for last in ("x", "1", "1/x", "-1/2", "1/2/3", "9" * 20 + "/1"):
        assert wrong(await writer.get(output, headers={"last-event-id": last})) == (400, "bad_input"), last


async def test_what_a_context_is_not_ready_for(writer: httpx.AsyncClient) -> None:
    made = (await writer.post(f"{API}/contexts", json={"name": "c", "tasks": [{"name": "a", **NOOP}]})).json()
    place = f"{API}/contexts/{made['id']}"
    assert wrong(await writer.delete(place)) == (409, "conflict")
    assert wrong(await writer.post(f"{place}/retry")) == (409, "conflict")
    for tasks in ([], [{"name": "a", **NOOP}], [{"needs": needs("z"), **NOOP}], "x", [{"kind": 1}]):
        assert wrong(await writer.post(f"{place}/tasks", json={"tasks": tasks})) == (400, "bad_input"), tasks


async def test_who_may_do_what(door: Door) -> None:
    reader = await door.token("read")
    for token, status in (("", 401), (reader, 403)):
        async with door.client(token) as client:
            for method, path in (
                ("POST", "contexts/ctx_1/cancel"),
                ("POST", "contexts/ctx_1/retry"),
                ("DELETE", "contexts/ctx_1"),
                ("POST", "tasks/tsk_1/cancel"),
            ):
                answer = await client.request(method, f"{API}/{path}")
                assert answer.status_code == status, (path, answer.text)
            for path, body in (
                ("contexts", {"name": "c", "tasks": [NOOP]}),
                ("contexts/ctx_1/tasks", {"tasks": [NOOP]}),
                ("tasks", NOOP),
            ):
                assert (await client.post(f"{API}/{path}", json=body)).status_code == status, path
            for page in ("contexts/ctx_1/cancel", "contexts/ctx_1/retry", "contexts/ctx_1/remove", "tasks/t/cancel"):
                assert (await client.post(f"/{page}")).status_code == status, page


async def test_closed_to_strangers(open_door: Any) -> None:
    async with open_door(open_read=False) as door, door.client() as client:
        for path in ("contexts", "contexts/c", "tasks", "tasks/t", "tasks/t/output", "workers", "workers/select"):
            assert (await client.get(f"{API}/{path}")).status_code == 401, path
        for path in ("contexts", "contexts/c", "tasks/t", "tasks/t/output", "workers"):
            assert (await client.get(f"/{path}")).status_code == 401, path
