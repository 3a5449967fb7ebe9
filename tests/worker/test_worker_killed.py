"""kill -9 of a real worker process at the bad moments of design: nothing that happened upstream is swallowed."""

import asyncio
import sys
from pathlib import Path

import pytest

from skep.rpc.messages import Hold
from tests.support.forge import Fault, Forge
from tests.worker import victim
from tests.worker.conftest import Running
from tests.worker.desk import RecordingDesk, held


async def start(worker: Running, link: str, place: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(victim.__file__)),
        str(worker.data),
        link,
        place,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("place", ["before fetch", "after fetch", "after tell"])
async def test_a_killed_worker_swallows_no_change(
    forge: Forge, desk: RecordingDesk, worker: Running, link: str, place: str
) -> None:
    repo = forge.create("one", {"a": b"1"})
    a = repo.refs()["refs/heads/main"]
    desk.give(Hold(held("src_1", forge.url("one"))))
    await desk.until(lambda: desk.fetched("src_1"))
    await worker.stop()

    b = repo.commit({"a": b"2"})
    child = await start(worker, link, place)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"here\n"
    child.kill()
    await child.wait()

    # the upstream goes back before anybody looks again
    repo.branch("main", at=a)
    worker.start()
    if place == "before fetch":
        c = repo.commit({"a": b"3"})
        expected = [(None, a), (a, c)]
    else:
        expected = [(None, a), (a, b), (b, a)]
    await desk.until(lambda: len(desk.moves("src_1", "refs/heads/main")) >= len(expected))
    assert [(move.old, move.new) for move in desk.moves("src_1", "refs/heads/main")] == expected
    assert len({body.batch for body in desk.fetched("src_1")}) == len(desk.fetched("src_1"))


async def test_a_killed_worker_leaves_no_git_that_keeps_the_mirror_from_its_successor(
    forge: Forge, desk: RecordingDesk, worker: Running, link: str
) -> None:
    await worker.stop()
    forge.create("one", {"a": b"1"})
    forge.fault("one", Fault(clone_delay=3600.0))
    desk.give(Hold(held("src_1", forge.url("one"))))
    child = await start(worker, link, "nowhere")
    try:
        async with asyncio.timeout(60):
            while not any(request.clone for request in forge.requests):
                await asyncio.sleep(0.02)
    finally:
        child.kill()
        await child.wait()

    forge.fault("one", None)
    worker.start()
    await desk.until(lambda: desk.bodies("src_1"))
    assert not desk.failed("src_1")
    assert forge.at_once == []
