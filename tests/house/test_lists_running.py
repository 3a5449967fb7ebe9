"""A whole Skep follows a list: its repositories are mirrored and searchable, and a push to the list is followed."""

import time
from pathlib import Path

from tests.house.running import RunningSkep
from tests.support.forge import Forge


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
    until = time.monotonic() + 180
    while True:
        found = running.cli("search", "needle", check=False).stdout
        if found.count("needle of") >= files:
            return found
        assert time.monotonic() < until, running.tail()
        time.sleep(0.2)


def test_a_skep_follows_another_by_its_manifest(tmp_path: Path) -> None:
    """Its sources rest for a day, so what it finds out it has from the manifest."""
    with Forge(tmp_path / "forge") as forge:
        repo = forge.create("org/a", {"file.txt": b"needle of one\n"})
        with RunningSkep(tmp_path / "first") as first, RunningSkep(tmp_path / "second", manifest_every=0.5) as second:
            first.cli("source", "add", forge.url("org/a"), "--wait")
            second.cli("list", "add", f"manifest:{first.url}/git/manifest.js.gz")
            assert "/git/127.0.0.1" in _found(second, 1)
            repo.commit({"other.txt": b"needle of two\n"})
            first.cli("source", "fetch", forge.url("org/a"), "--wait")
            assert "needle of two" in _found(second, 2)
