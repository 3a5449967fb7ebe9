"""/api/v1/contexts, /tasks and /workers over a coordinator that places tasks on a worker."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.base.answers import Output
from skep.base.caller import SYSTEM, Caller, Scope
from skep.base.errors import NotFound
from skep.tasks import output_http
from skep.tasks.model import ContextSpec, TaskSpec
from tests.support.postgres import fresh_database

from .tasks_house import OFFER, House, working

API = "/api/v1"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with working(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["memory", "postgres"])
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    if request.param == "memory":
        async with working(tmp_path) as opened:
            yield opened
        return
    async with fresh_database(request.getfixturevalue("postgres_url")) as url, working(tmp_path, url) as opened:
        yield opened


@pytest.fixture
async def writer(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with house.door.client(await house.door.token("read", "write")) as client:
        yield client


async def call(client: httpx.AsyncClient, method: str, path: str, status: int = 200, **more: Any) -> Any:
    answer = await client.request(method, API + path, **more)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


RELEASE = {
    "name": "release",
    "properties": {"colour": "gold"},
    "templates": {"quick": {"kind": "held"}},
    "tasks": [
        {"name": "build", "template": "quick", "properties": {"size": "2"}},
        {"name": "test", "kind": "bad", "needs": [{"task": "build"}]},
        {"name": "ship", "kind": "held", "needs": [{"task": "test"}, {"task": "build"}]},
        {"name": "tell", "kind": "held", "needs": [{"task": "ship", "rule": "ended"}]},
    ],
}


async def test_a_context_from_submission_to_removal(anywhere: House) -> None:
    house = anywhere
    async with house.door.client(await house.door.token("read", "write")) as client:
        context = await call(client, "POST", "/contexts", 201, json=RELEASE)
        assert (context["state"], context["tasks"], context["cause"]) == ("RUNNING", 4, "person:tester")
        waited = await call(client, "GET", f"/contexts/{context['id']}/wait?seconds=0")
        assert waited["state"] == "RUNNING"
        (added,) = (
            await call(
                client,
                "POST",
                f"/contexts/{context['id']}/tasks",
                201,
                json={"tasks": [{"name": "more", "template": "quick", "needs": [{"task": "build"}]}]},
            )
        )["tasks"]
        house.go.set()
        ended = await call(client, "GET", f"/contexts/{context['id']}/wait?seconds=60")
        assert (ended["state"], ended["tasks"], ended["left"], ended["failed"]) == ("FAILED", 5, 0, 2)
        view = await call(client, "GET", f"/contexts/{context['id']}")
        assert {task["name"]: task["state"] for task in view["tasks"]} == {
            "build": "FINISHED", "test": "FAILED", "ship": "ABORTED", "tell": "FINISHED", "more": "FINISHED",
        }  # fmt: skip
        assert view["needs"] == {"test": ["build"], "ship": ["test", "build"], "tell": ["ship"], "more": ["build"]}
        build = await call(client, "GET", f"/tasks/{view['tasks'][0]['id']}")
        assert build["result"] == {"pots": 3}
        assert build["spec"]["properties"] == {"colour": "gold", "size": "2"}
        assert [move["state"] for move in build["moves"]][:2] == ["CREATED", "SUBMITTED"]
        assert build["moves"][-1]["by"] == "worker"
        assert (await call(client, "GET", f"/tasks/{added}"))["task"]["name"] == "more"
        again = await call(client, "POST", f"/contexts/{context['id']}/retry")
        assert again["state"] == "RUNNING"
        await call(client, "GET", f"/contexts/{context['id']}/wait?seconds=60")
        await call(client, "DELETE", f"/contexts/{context['id']}", 204)
        await call(client, "GET", f"/contexts/{context['id']}", 404)
        await call(client, "GET", f"/tasks/{added}", 404)


async def test_what_is_listed_can_be_chosen_and_comes_in_pages(house: House, writer: httpx.AsyncClient) -> None:
    for n in range(5):
        spec = ContextSpec(f"c{n}", (TaskSpec(kind="bad" if n < 2 else "magic"),))
        await house.core.contexts.submit(SYSTEM, spec, cause=f"change:{n}")
    for n in range(2):
        listed = await call(writer, "GET", f"/contexts?cause=change:{n}")
        await call(writer, "GET", f"/contexts/{listed['items'][0]['id']}/wait?seconds=60")
    first = await call(writer, "GET", "/contexts?limit=3")
    rest = await call(writer, "GET", f"/contexts?limit=3&page={first['next_page']}")
    assert [one["name"] for one in first["items"] + rest["items"]] == ["c4", "c3", "c2", "c1", "c0"]
    assert rest["next_page"] == ""
    failed = await call(writer, "GET", "/contexts?state=FAILED")
    assert [one["name"] for one in failed["items"]] == ["c1", "c0"]
    tasks = await call(writer, "GET", "/tasks?state=FAILED&limit=1")
    assert (tasks["items"][0]["reason"], tasks["items"][0]["code"]) == ("the <b>hive</b> is empty", 2)
    assert len((await call(writer, "GET", f"/tasks?page={tasks['next_page']}&worker=wrk_1"))["items"]) == 1
    many = await call(writer, "POST", "/contexts", 201, json={"name": "many", "tasks": [{"kind": "magic"}] * 7})
    shown = (await call(writer, "GET", f"/contexts/{many['id']}?limit=4"))["tasks"]
    more = (await call(writer, "GET", f"/contexts/{many['id']}?after={shown[-1]['id']}"))["tasks"]
    assert [task["name"] for task in shown + more] == [f"task-{n}" for n in range(1, 8)]


async def test_one_task_alone_and_its_end(house: House, writer: httpx.AsyncClient) -> None:
    made = await call(writer, "POST", "/tasks", 201, json={"name": "alone", "kind": "held"})
    assert made["context"]["name"] == "alone"
    task = await house.running(await house.core.contexts.wait(SYSTEM, made["context"]["id"], 0), "alone")
    assert task.id == made["task"]
    aborted = await call(writer, "POST", f"/tasks/{task.id}/cancel?reason=too+late")
    assert aborted["state"] == "ABORTED"
    assert "too late" in aborted["reason"]
    await call(writer, "POST", f"/tasks/{task.id}/cancel", 409)
    other = await call(writer, "POST", "/tasks", 201, json={"kind": "magic"})
    await call(writer, "POST", f"/contexts/{other['context']['id']}/cancel?reason=enough", 202)
    ended = await call(writer, "GET", f"/contexts/{other['context']['id']}/wait?seconds=60")
    assert (ended["state"], ended["failed"]) == ("FAILED", 1)


async def test_output_is_text_or_base64_and_goes_on_from_a_number(house: House, writer: httpx.AsyncClient) -> None:
    task = await house.held_task()
    await house.write(task, 0, "honey ü\n")
    await house.write(task, 1, "bees", "stderr")
    await house.write(task, 2, b"\xff\x00")
    raw = (await writer.get(f"{API}/tasks/{task.id}/output")).content
    output = msgspec.json.decode(raw, type=Output)
    assert [(one.n, one.stream, one.body) for one in output.chunks] == [
        (0, "stdout", "honey ü\n".encode()), (1, "stderr", b"bees"), (2, "stdout", b"\xff\x00"),
    ]  # fmt: skip
    assert (output.after, output.state) == (2, "RUNNING")
    assert [set(one) & {"text", "base64"} for one in json.loads(raw)["chunks"]] == [{"text"}, {"text"}, {"base64"}]
    later = await call(writer, "GET", f"/tasks/{task.id}/output?after=0&stream=stdout")
    assert [one["n"] for one in later["chunks"]] == [2]
    assert (await call(writer, "GET", f"/tasks/{task.id}/output?after=2"))["after"] == 2
    assert (await call(writer, "GET", f"/tasks/{task.id}/output?attempt=9"))["chunks"] == []
    text = await writer.get(f"/tasks/{task.id}/output")
    assert (text.content, text.headers["content-type"]) == (
        b"honey \xc3\xbc\nbees\xff\x00",
        "text/plain; charset=utf-8",
    )


async def test_a_large_output_is_answered_in_parts(house: House, writer: httpx.AsyncClient) -> None:
    task = await house.held_task()
    for n in range(6):
        await house.write(task, n, str(n) * 1_000_000)
    first = await call(writer, "GET", f"/tasks/{task.id}/output")
    rest = await call(writer, "GET", f"/tasks/{task.id}/output?after={first['after']}")
    assert [one["n"] for one in first["chunks"] + rest["chunks"]] == [0, 1, 2, 3, 4, 5]


async def test_a_follower_hears_what_was_and_what_comes_until_the_end(house: House, writer: httpx.AsyncClient) -> None:
    task = await house.held_task()
    await house.write(task, 0, "was")
    closing = asyncio.Event()
    heard = output_http.events(house.core.tasks, SYSTEM, task.id, task.attempt, -1, None, closing)
    assert await anext(heard) == b": following\n\n"
    assert b'"text":"was"' in await anext(heard)
    await house.write(task, 1, "two\nlines", "stderr")
    event = await anext(heard)
    assert event.startswith(b"id: %d/1\ndata: " % task.attempt) and event.count(b"\n") == 3
    following = asyncio.create_task(writer.get(f"{API}/tasks/{task.id}/output?follow=1&stream=stderr"))
    house.go.set()
    assert (await anext(heard)).startswith(b"event: ended\n")
    assert [one async for one in heard] == []
    answer = await following
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "two" in answer.text and "was" not in answer.text and "event: ended" in answer.text
    last = {"last-event-id": f"{task.attempt}/1"}
    assert (
        "data: {"
        not in (await writer.get(f"{API}/tasks/{task.id}/output?follow=1", headers=last)).text.split("ended")[0]
    )


async def test_a_server_that_closes_ends_its_followers(house: House) -> None:
    task = await house.held_task()
    closing = asyncio.Event()
    heard = output_http.events(house.core.tasks, SYSTEM, task.id, task.attempt, -1, None, closing)
    await anext(heard)
    next_one = asyncio.create_task(anext(heard, b"over"))
    closing.set()
    assert await next_one == b"over"


async def test_workers_tell_what_they_offer_and_run(house: House, writer: httpx.AsyncClient) -> None:
    task = await house.held_task()
    (worker,) = await call(writer, "GET", "/workers")
    assert (worker["member"]["id"], worker["member"]["state"]) == ("wrk_1", "alive")
    assert worker["offer"]["facts"]["cpu"] == 2 and worker["offer"]["slots"] == {"own": 4}
    assert [one["id"] for one in worker["running"]] == [task.id]


async def test_the_load_counts_what_workers_of_a_kind_may_do(house: House, writer: httpx.AsyncClient) -> None:
    for n in range(OFFER.slots["own"]):
        await house.held_task(f"busy-{n}")
    source = (await house.core.sources.add(SYSTEM, "https://example.org/of/somebody")).source
    context = await house.engine.submit(
        TaskSpec("fits", kind="held"),
        TaskSpec("too-large", kind="held", selector="cpu >= 64"),
        TaskSpec("not-allowed", argv=("no-such-program",)),
        TaskSpec("of-its-holder", kind="held", source=source.id, holder=True),
    )
    while {one.state for one in (await house.engine.tasks(context)).values()} != {"WAITING"}:
        await asyncio.sleep(0.01)
    assert await call(writer, "GET", "/workers/load") == {"ready": 2, "placed": 4, "ended": 0}
    # nobody with this label was ever there: any of them may be able to
    assert await call(writer, "GET", "/workers/load", params={"label": "new"}) == {"ready": 4, "placed": 0, "ended": 0}


SELECTORS = {
    "": "",
    'cpu >= 2 and tools has "gcc"': "",
    "cpu >= 4 and memory >= 1GB": "cpu >= 4 is not true (cpu is 2)",
    'os == "linux" and not (tools has "git")': 'not (tools has "git") is not true',
    'cpu > 4 or os == "bsd"': '(cpu > 4 or os == "bsd") is not true (cpu is 2, os is linux)',
    "load < 0": "load < 0 is not true (load is unknown)",
    'holds has "github.com/a/b"': 'holds has "github.com/a/b" is not true',
    "cpu > 4 and memory > 9TB": "cpu > 4 is not true (cpu is 2); memory > 9TB is not true (memory is 8e+09)",
}


async def test_a_selector_is_tried(house: House, writer: httpx.AsyncClient) -> None:
    for selector, reason in SELECTORS.items():
        found = await call(writer, "GET", "/workers/select", params={"selector": selector})
        assert found == [{"worker": "wrk_1", "matches": not reason, "reason": reason}]


async def test_who_holds_a_private_source_is_told_only_to_those_who_may_see_it(house: House) -> None:
    added = await house.core.sources.add(SYSTEM, "https://example.org/top/secret", visibility="private")
    selector = f'holds has "{added.source.name}"'
    answers = {}
    for scopes in ((), ("private",)):
        async with house.door.client(await house.door.token("read", *scopes)) as client:
            (match,) = await call(client, "GET", "/workers/select", params={"selector": selector})
            answers[scopes] = match["matches"]
    assert answers == {(): False, ("private",): True}


async def test_what_is_about_a_private_source_is_for_those_who_may_see_it(house: House) -> None:
    source = (await house.core.sources.add(SYSTEM, "https://example.org/top/secret", visibility="private")).source
    about = TaskSpec("quiet", kind="held", source=source.id, environment={"KEY": "s3cret"})
    plain = TaskSpec("plain", kind="held", environment={"KEY": "s3cret"})
    context = await house.engine.submit(about, plain)
    tasks = await house.engine.tasks(context)
    await house.write(tasks["quiet"], 0, "whispered")
    reader, writer, insider = (
        Caller("someone", frozenset[Scope](scopes)) for scopes in (("read",), ("read", "write"), ("read", "private"))
    )
    for stranger in (reader, writer):
        assert [one.name for one in (await house.core.tasks.list(stranger)).items] == ["plain"]
        for asked in (house.core.tasks.show, house.core.tasks.output):
            with pytest.raises(NotFound):
                await asked(stranger, tasks["quiet"].id)
        with pytest.raises(NotFound):
            await anext(house.core.tasks.follow(stranger, tasks["quiet"].id))
        assert (await house.core.contexts.list(stranger)).items == []
        for seen in (house.core.contexts.show(stranger, context.id), house.core.contexts.wait(stranger, context.id, 0)):
            with pytest.raises(NotFound):
                await seen
        (worker,) = await house.core.workers.list(stranger)
        assert [one.name for one in worker.running] == ["plain"]
    for changed in (house.core.contexts.cancel, house.core.contexts.retry, house.core.contexts.remove):
        with pytest.raises(NotFound):
            await changed(writer, context.id)
    assert (await house.core.contexts.list(insider)).items == [context]
    (chunk,) = await house.core.tasks.output(insider, tasks["quiet"].id)
    assert chunk.body == b"whispered"
    assert (await house.core.tasks.show(insider, tasks["quiet"].id)).spec.environment == {"KEY": "(hidden)"}
    assert (await house.core.tasks.show(reader, tasks["plain"].id)).spec.environment == {"KEY": "(hidden)"}
    assert (await house.core.tasks.show(writer, tasks["plain"].id)).spec.environment == {"KEY": "s3cret"}
    house.go.set()


async def test_a_page_of_tasks_by_state(house: House, writer: httpx.AsyncClient) -> None:
    held = await house.held_task("one")
    await house.engine.ended(await house.engine.submit(TaskSpec("two", kind="bad")))
    for state, shown in (("RUNNING", [True, False]), ("FAILED", [False, True]), ("", [True, True])):
        page = await writer.get("/tasks", params={"state": state} if state else {}, headers={"accept": "text/html"})
        assert page.status_code == 200
        assert [text in page.text for text in ("one</a>", "two</a>")] == shown
    assert f"/tasks/{held.id}" in page.text
    house.go.set()


async def test_the_schema_knows_the_routes(house: House, writer: httpx.AsyncClient) -> None:
    schema = await call(writer, "GET", "/openapi.json")
    assert {"ContextSpec", "TaskSpec", "ContextPage", "TaskPage", "Output"} <= set(schema["components"]["schemas"])
    assert "/api/v1/contexts/{id}/retry" in schema["paths"]
