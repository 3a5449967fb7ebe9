"""A thousand commands at once beside a busy link; and a runtime that is not root's."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Renew, Run
from tests.runtime import lone_worker
from tests.runtime.conftest import DEADLINE, Tag, until
from tests.tasks.house import Hand, command, coordinator, hand

MANY = 1000
NOBODY = 65534


async def chatter(worker: Hand) -> None:
    """Asks without a pause, for ever."""
    while True:
        await worker.client.ask(Renew(worker.offer, worker.doer.running))


async def test_a_thousand_commands_at_once_while_the_link_is_busy(
    tag: Tag, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Forks by the hundred beside gRPC's threads: neither stops the other."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    codes: list[int | None] = []

    async def do(run: Run) -> None:
        argv = ("/bin/sh", "-c", 'read line < "$1"; exit 0', tag.word, str(gate))
        codes.append((await runtime.run(Command(run.task, 1, run.context, argv), lambda *_: None)).code)

    settings = Settings(task_paths=(str(gate),))
    async with (
        Runtime(tmp_path / "runtime", settings, SystemClock()) as runtime,
        coordinator(tmp_path_factory.mktemp("t"), "sqlite:") as engine,
        hand(engine, slots=MANY, command=do) as worker,
    ):
        talking = [asyncio.create_task(chatter(worker)) for _ in range(4)]
        context = await engine.submit(*(command(f"t{n}") for n in range(MANY)))
        await until(lambda: len(runtime.running) == MANY)
        async with asyncio.timeout(DEADLINE):
            # in a thread: to look at all of /proc takes so long that the link would stand still
            while len(await asyncio.to_thread(tag.pids)) != MANY:
                pass
        with gate.open("w") as lines:
            lines.write("\n" * MANY)
            lines.flush()
            ended = await engine.ended(context, DEADLINE)
        for one in talking:
            assert not one.done()
            one.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
    assert (ended.state, codes) == ("FINISHED", [0] * MANY)
    assert not tag.pids()


def _nobody_may() -> bool:
    try:
        return subprocess.run([sys.executable, "-c", "import skep"], user=NOBODY, check=False).returncode == 0
    except PermissionError:
        return False


@pytest.mark.skipif(
    os.getuid() != 0 or not _nobody_may(), reason="not root; or this Python lies where only root may read"
)
async def test_a_worker_that_is_not_root(tag: Tag) -> None:
    """Its commands begin, and none of them outlives it when it is killed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    argv = [sys.executable, lone_worker.__file__, str(folder / "runtime"), "3", "/bin/sh", "-c", "sleep 1000", tag.word]
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[]) as child:
            assert child.stdout and child.stdout.readline() == b"running\n"
            async with asyncio.timeout(DEADLINE):
                await until(lambda: len(tag.pids()) == 4)  # three, and the worker, which has the word among its own
            owners = {Path(f"/proc/{pid}").stat().st_uid for pid in tag.pids()}
            child.kill()
        assert owners == {NOBODY}
        await until(lambda: not tag.pids())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
