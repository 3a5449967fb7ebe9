"""kill -9 at any moment leaves the old state or the new one, never a mixture, and nothing adopted is lost."""

import random
import subprocess
import sys
import time
from pathlib import Path

from skep.engines.db.sqlite import open_sqlite
from skep.engines.index.trigram import open_trigram
from skep.search.query import parse
from tests.index.conftest import find

CHILD = Path(__file__).with_name("crash_child.py")
FILES = 7


def run_and_kill(data: Path, seconds: float) -> int:
    """The last commit the child said was adopted."""
    with subprocess.Popen([sys.executable, str(CHILD), str(data)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        first = child.stdout.readline()
        time.sleep(seconds)  # any moment is as good as another
        child.kill()
        return int([first, *child.stdout][-1])


async def test_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(8):
        told = run_and_kill(tmp_path, rng.random() * 0.3)
        db = await open_sqlite("sqlite:", data=tmp_path, durability="full")
        searcher = await open_trigram("file:", data=tmp_path, db=db)
        await searcher.start()
        standing = searcher.standing(1)
        assert standing is not None
        commit = int(standing.commit)
        assert commit in (told, told + 1)
        lines = sorted(line.text for hit in await find(searcher, parse("word")) for line in hit.lines)
        assert lines == sorted(f"word {n}" for n in range(max(1, commit - FILES + 1), commit + 1))
        assert await searcher.check() == []
        folders = {path.name for path in (tmp_path / "index").iterdir()}
        assert len(folders) == searcher.size().shards
        await searcher.close()
        await db.close()
