"""Large bodies are decoded in other threads, in pieces, and have bounds."""

import gzip
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.interfaces.http import decoding
from skep.interfaces.http import dependencies as handlers
from skep.interfaces.http.decoding import SMALL, Outline, aside, outlined
from skep.topics import messages_http

from .asgi_calls import Answered, Body, send_request
from .conftest import Door

TASK = b'{"name": "t%d", "kind": "noop"}'
JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a,\\"[{')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a,\\"[{')), inner),
)


async def post(door: Door, path: str, body: bytes, **headers: str) -> Answered:
    return await send_request(door, "POST", path, Body([body]), await door.token("write"), **headers)


def context(*tasks: bytes, name: bytes = b'"name": "large"') -> bytes:
    return b"{" + name + b', "tasks": [' + b",".join(tasks) + b"]}"


@given(JSON)
@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_outline_of_any_json_counts_its_items_and_containers(block: int, value: Any) -> None:
    def containers(value: Any) -> int:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return isinstance(value, list | dict) + sum(map(containers, inside))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_BLOCK", block)
        items = max(1, len(value)) if isinstance(value, list | dict) else 1
        assert outlined(json.dumps(value).encode()) == Outline(items, containers(value))


async def test_work_on_a_large_body_is_done_in_another_thread() -> None:
    assert await aside(SMALL, threading.current_thread) is threading.current_thread()
    assert (await aside(SMALL + 1, threading.current_thread)).name.startswith("decode")


@pytest.mark.parametrize("path", ["contexts", "publish"])
async def test_large_body_of_a_request_is_decoded_in_another_thread(
    door: Door, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads = []

    def watch(module: Any, name: str) -> None:
        decode = getattr(module, name)

        def watched(*given: Any) -> Any:
            threads.append(threading.current_thread().name)
            return decode(*given)

        monkeypatch.setattr(module, name, watched)

    if path == "contexts":
        watch(handlers, "decoded")
        answer = await post(door, "/api/v1/contexts", context(*(TASK % n for n in range(3_000))))
    else:
        await post(door, "/api/v1/topics", b'{"name": "news"}')
        watch(messages_http, "parsed")
        body = b'{"messages": [' + b",".join([b'{"body": "%0100d"}' % n for n in range(1_000)]) + b"]}"
        answer = await post(door, "/api/v1/topics/news/messages", body)
    assert answer.status == 201, answer.body
    assert [name.partition("_")[0] for name in threads] == ["decode"]


async def test_context_of_a_million_tasks_is_refused_before_one_is_decoded(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_item", None)
    answer = await post(door, "/api/v1/contexts", context(b"{}," * 999_999 + b"{}"))
    assert (answer.status, answer.code) == (400, "bad_input")
    assert b"1,000,000 items; at most 100,000" in answer.body


async def test_context_of_too_many_lists_and_objects_is_refused(door: Door) -> None:
    answer = await post(door, "/api/v1/contexts", context(b'{"arguments": {"a": [' + b"[]," * 1_100_000 + b"0]}}"))
    assert (answer.status, answer.code) == (413, "too_large")


async def test_task_larger_than_a_request_of_its_own_may_be_is_refused(door: Door) -> None:
    answer = await post(door, "/api/v1/contexts", context(TASK % 1, b'{"name": "' + b"x" * 1_000_000 + b'"}'))
    assert (answer.status, answer.code) == (413, "too_large")
    assert b"tasks[1]" in answer.body


WRONG = {
    "deep nesting": context(b'{"arguments": {"a": ' + b"[" * SMALL + b"]" * SMALL + b"}}"),
    "deep nesting outside": b"[" * (SMALL + 1),
    "a huge number": context(b'{"priority": ' + b"9" * SMALL + b"}"),
    "a huge exponent": context(b'{"backoff": 1e' + b"9" * SMALL + b"}"),
    "compressed": gzip.compress(context(*(TASK % n for n in range(9)))) + bytes(SMALL),
    "not UTF-8": context(b'{"name": "' + b"\xff" * SMALL + b'"}'),
    "cut off": context(*(TASK % n for n in range(3_000)))[:-1],
}


@pytest.mark.parametrize("case", WRONG)
async def test_large_body_that_is_not_what_it_should_be_is_refused(door: Door, case: str) -> None:
    answer = await post(door, "/api/v1/contexts", WRONG[case], content_type="application/json")
    assert (answer.status, answer.code) == (400, "bad_input")


async def test_wrong_task_of_a_large_body_is_named(door: Door) -> None:
    answer = await post(door, "/api/v1/contexts", context(*(TASK % n for n in range(3_000)), b'{"bees": 1}'))
    assert answer.status == 400
    assert b"tasks[3000]: Object contains unknown field `bees`" in answer.body


async def test_of_two_fields_with_one_name_the_last_counts_also_in_a_large_body(door: Door) -> None:
    answer = await post(
        door, "/api/v1/contexts", context(*(TASK % n for n in range(3_000)), name=b'"name": "a", "name": "b"')
    )
    assert (answer.status, json.loads(answer.body)["name"]) == (201, "b")


async def test_too_many_or_too_large_messages_are_refused_before_they_are_decoded(door: Door) -> None:
    await post(door, "/api/v1/topics", b'{"name": "news"}')
    many = await post(
        door, "/api/v1/topics/news/messages", b'{"messages": [' + b'{"body":0},' * 200_000 + b'{"body":0}]}'
    )
    assert (many.status, many.code) == (400, "bad_input")
    batch = [
        b'{"specversion": "1.0", "id": "%d", "source": "s", "type": "t", "data": "%0100d"}' % (n, n)
        for n in range(9_999)
    ]
    kind = {"content_type": "application/cloudevents-batch+json"}
    assert (await post(door, "/api/v1/topics/news/messages", b"[" + b",".join(batch) + b"]", **kind)).status == 201
    assert (await post(door, "/api/v1/topics/news/messages", b"[" + b"0," * 600_000 + b"0]", **kind)).status == 400
    large = await post(door, "/api/v1/topics/news/messages", b'{"body": [' + b"[]," * 400_000 + b"0]}")
    assert (large.status, large.code) == (413, "too_large")
