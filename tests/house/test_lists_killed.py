"""kill -9 of the real process while it reads a list: the next one reads on; in the end the catalogue is the list."""

import random
import time
from pathlib import Path

from tests.house.running import RunningSkep
from tests.support.forge import Forge

FILES, PER_FILE, KILLS = 20, 60, 3


def written(numbers: list[int]) -> dict[str | bytes, bytes | str | None]:
    """Nobody listens where these URLs lead: the list is the point."""
    files: dict[str | bytes, bytes | str | None] = {}
    for n in range(FILES):
        lines = [f"- http://127.0.0.1:9/r{k}\n" for k in numbers if k % FILES == n]
        files[f"{n}.yaml"] = "".join(lines).encode()
    return files


def names(skep: RunningSkep) -> list[str]:
    return sorted(row["name"] for row in skep.rows("source", "list") if "127.0.0.1:9/" in row["name"])


def test_killed_while_a_list_is_read(tmp_path: Path, forge: Forge) -> None:
    chance = random.Random(11)
    numbers = list(range(FILES * PER_FILE))
    repo, url = forge.create("lists", written(numbers)), forge.url("lists")
    with RunningSkep(tmp_path / "data", lists=[url]) as skep:
        for turn in range(KILLS):
            time.sleep(chance.random() * 2)  # any moment will do
            skep.kill()
            numbers = [n for n in numbers if chance.random() < 0.99]
            numbers += range(10_000 * (turn + 1), 10_000 * (turn + 1) + 40)
            repo.commit(written(numbers))
            skep.start()
            skep.cli("list", "read", url)
        wanted = sorted(f"127.0.0.1:9/r{n}" for n in numbers)
        end = time.monotonic() + 180
        while (found := names(skep)) != wanted or not told(skep, len(wanted)):
            assert time.monotonic() < end, (len(found), len(wanted), skep.rows("list", "list"), skep.tail())
            time.sleep(0.2)


def told(skep: RunningSkep, entries: int) -> bool:
    """What is said of the list, too."""
    (shown,) = skep.rows("list", "list")
    return (shown["state"], shown["entries"]) == ("current", entries)
