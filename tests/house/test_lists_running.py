"""A whole Skep follows a list: its repositories are mirrored and searchable, and a push to the list is followed."""

import time
from pathlib import Path

from skep.testing.forge import Forge
from tests.house.running import RunningSkep


def test_a_list_is_followed(tmp_path: Path) -> None:
    with Forge(tmp_path / "forge") as forge:
        for name in ("a", "b"):
            forge.create(f"org/{name}", {"file.txt": f"needle of {name}\n".encode()})
        repo = forge.create("lists", {"x.yaml": f"- {forge.url('org/a')}\n".encode()})
        running = RunningSkep(tmp_path / "data")
        try:
            running.cli("list", "add", forge.url("lists"))
            running.cli("source", "fetch", forge.url("lists"), "--wait")
            assert "org/a" in _found(running, 1)
            repo.commit({"x.yaml": f"- {forge.url('org/a')}\n- {forge.url('org/b')}\n".encode()})
            running.cli("list", "read", forge.url("lists"))
            assert "org/b" in _found(running, 2)
        finally:
            running.stop()


def _found(running: RunningSkep, files: int) -> str:
    """What a search finds once it finds so many files; a person would look again and again too."""
    until = time.monotonic() + 60
    while True:
        found = running.cli("search", "needle", check=False).stdout
        if found.count("needle of") >= files:
            return found
        assert time.monotonic() < until, running.tail()
        time.sleep(0.2)
