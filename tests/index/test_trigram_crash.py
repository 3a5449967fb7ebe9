"""kill -9 at any moment, and at each step of an adoption and of a merge, leaves the old state or the new one, never a
mixture; nothing adopted is lost."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skep.search.query import parse
from skep.storage.code_index.trigram.searcher import open_trigram
from skep.storage.sqlite import open_sqlite
from tests.index.conftest import find
from tests.index.crash_child import FILES, STEPS

CHILD = Path(__file__).with_name("crash_child.py")


def run_and_kill(data: Path, seconds: float) -> int:
    """The last commit the child said was adopted."""
    with subprocess.Popen([sys.executable, str(CHILD), str(data)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        first = child.stdout.readline()
        time.sleep(seconds)  # any moment is as good as another
        child.kill()
        return int([first, *child.stdout][-1])


async def assert_whole(data: Path, told: int) -> None:
    """What was told is there, and perhaps one more; all of it, once, and no other folder."""
    db = await open_sqlite("sqlite:", data=data, durability="full")
    searcher = await open_trigram("file:", data=data, db=db)
    await searcher.start()
    standing = searcher.standing(1)
    assert standing is not None
    commit = int(standing.commit)
    assert commit in (told, told + 1)
    lines = sorted(line.text for hit in await find(searcher, parse("word")) for line in hit.lines)
    assert lines == sorted(f"word {n}" for n in range(max(1, commit - FILES + 1), commit + 1))
    assert await searcher.check() == []
    folders = {path.name for path in (data / "index").iterdir()}
    assert len(folders) == searcher.size().shards
    await searcher.close()
    await db.close()


async def test_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(4):
        await assert_whole(tmp_path, run_and_kill(tmp_path, rng.random() * 0.3))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_kill_at_each_step(tmp_path: Path, step: str, moment: str) -> None:
    command = [sys.executable, str(CHILD), str(tmp_path), step, moment]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    await assert_whole(tmp_path, int(ran.stdout.split()[-1]))
