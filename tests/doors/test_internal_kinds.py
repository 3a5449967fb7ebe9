"""Kinds that are the server's own are refused at every public way in, and the answer names those that are not."""

from typing import Any

import httpx

from skep.base.caller import SYSTEM
from skep.tasks.model import ContextSpec, TaskSpec
from tests.doors.conftest import Door
from tests.tasks.hostile import submissions

API = "/api/v1"
NAMES_THEM = "kinds that can be submitted: command, evaluate, fsck, noop"


async def refused(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    answer = await client.post(API + path, json=body)
    assert answer.status_code == 400, (path, body, answer.text)
    assert answer.json()["error"]["hint"] == NAMES_THEM, (path, body, answer.text)


async def test_internal_kinds_are_refused_at_every_way_in(door: Door) -> None:
    running = await door.core.contexts.submit(SYSTEM, ContextSpec("c", (TaskSpec("a", kind="noop"),)))
    async with door.client(await door.token("read", "write", "admin")) as client:
        for task in submissions():
            context = {"name": "c", "tasks": [task]}
            await refused(client, "/tasks", task)
            await refused(client, "/contexts", context)
            await refused(client, "/contexts", {"name": "c", "tasks": [{"template": "t"}], "templates": {"t": task}})
            await refused(client, f"/contexts/{running.id}/tasks", {"tasks": [task]})
            await refused(client, "/rules", {"name": "r", "cron": "0 3 * * *", "context": context})
        tasks = await client.get(API + "/tasks")
    assert [one["name"] for one in tasks.json()["items"]] == ["a"]


async def test_kinds_for_callers_are_accepted(door: Door) -> None:
    async with door.client(await door.token("read", "write")) as client:
        for task in (
            {"kind": "noop"},
            {"kind": "fsck"},
            {"argv": ["true"]},
            {"kind": "evaluate", "arguments": {"benchmark": "speed", "plot": "table"}},
        ):
            answer = await client.post(API + "/tasks", json=task)
            assert answer.status_code == 201, answer.text
        wrong = await client.post(API + "/tasks", json={"kind": "evaluate", "arguments": {"plot": "../x"}})
        assert wrong.status_code == 400 and "arguments are not those of the kind" in wrong.json()["error"]["message"]
