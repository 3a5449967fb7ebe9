"""The pages of packages and results: nothing of a stranger's reaches the page raw."""

from collections.abc import AsyncIterator

import pytest

from skep.base.caller import SYSTEM
from skep.results.api import Draft
from skep.tasks.model import ContextSpec, TaskSpec
from tests.doors.conftest import Door, OpenDoor, open_door
from tests.packages.making import files, tar

__all__ = ["open_door"]


@pytest.fixture
async def door(open_door: OpenDoor) -> AsyncIterator[Door]:
    async with open_door() as opened:
        yield opened


async def pushed(door: Door, version: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        content = files(version)
        content["skep-package.toml"] = content["skep-package.toml"].replace(b"measures", b"<b>measures</b>")
        yield tar(content)

    await door.core.packages.push(SYSTEM, body())


async def test_packages(door: Door) -> None:
    async with door.client(await door.token("read")) as client:
        assert "No packages yet" in (await client.get("/packages")).text
        for n in range(51):
            await pushed(door, f"1.{n:02}")
        text = (await client.get("/packages")).text
        assert "org.example/bench/1.00" in text and "&lt;b&gt;measures" in text and "<b>measures" not in text
        assert "sh run.sh" in text and "twice" in text
        rest = (await client.get("/packages?page=org.example/bench/1.49")).text
        assert "1.50" in rest and "1.49/archive" not in rest


async def test_results(door: Door) -> None:
    core = door.core
    context = await core.contexts.submit(SYSTEM, ContextSpec("c", (TaskSpec("t", argv=("x",)),)))
    task = (await core.contexts.show(SYSTEM, context.id)).tasks[0].id
    async with door.client(await door.token("read")) as client:
        assert "No results yet" in (await client.get("/results")).text
        drafts = [Draft("time", float(n), "s", group="<i>parse", tags={"n": "<u>"}) for n in range(60)]
        await core.results.record(SYSTEM, task, None, [*drafts, Draft(kind="failure")])
        text = (await client.get("/results")).text
        assert "&lt;i&gt;parse" in text and "<i>parse" not in text and "<u>" not in text
        assert 'rel="next"' in text
        assert (await client.get("/results", params={"where": "value>=59 metric=time"})).text.count("59 s") == 1
        assert "Nothing matches" in (await client.get("/results", params={"where": "metric=x"})).text
        async with door.client(await door.token("write")) as writer:
            large = await writer.post("/api/v1/results", content=b'{"task": "' + b"x" * 2_000_000)
            assert large.status_code == 413
            odd = await writer.post("/api/v1/results", json={"task": task, "results": [{"metric": "a", "valu": 1}]})
            assert odd.status_code == 400
        wrong = await client.get("/results", params={"where": "fast"})
        assert wrong.status_code == 400 and "&#39;fast&#39; is no filter" in wrong.text
