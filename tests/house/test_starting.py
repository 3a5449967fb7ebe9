"""Starting badly: each way ends at once, with one clear line and a hint, and without a traceback."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from skep.base.errors import BadInput
from skep.config.settings import Settings
from skep.processes.up import _bound
from skep.testing.server import free_port
from tests.house.running import SKEP, RunningSkep, environment
from tests.support.forge import Forge


def start(
    data: Path, *args: str, before: tuple[str, ...] = (), settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [*before, *SKEP, "up", "--data", str(data), "--listen", "127.0.0.1:0", *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment(settings or {})
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "hint:" in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(start(tmp_path, "--listen", f"127.0.0.1:{port}"), f"127.0.0.1:{port} is taken")


def test_a_taken_port_of_the_link(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        here = f"127.0.0.1:{taken.getsockname()[1]}"
        done = start(tmp_path, "--link-listen", here)
        refused(done, f"cannot listen on {here}: it is taken")
        assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_one_port_for_people_and_workers(tmp_path: Path, host: str) -> None:
    port = free_port()
    done = start(tmp_path, "--listen", f"127.0.0.1:{port}", "--link-listen", f"{host}:{port}")
    refused(done, "are the same address")
    assert "Skep is up" not in done.stderr


def test_a_port_is_taken_as_soon_as_it_is_bound(tmp_path: Path) -> None:
    """By another that has begun, too, and waits for something before it serves."""
    settings = Settings(listen=f"127.0.0.1:{free_port()}")
    with _bound(settings), pytest.raises(BadInput, match="is taken"):
        _bound(settings)


def test_a_database_file_belongs_to_one_process(tmp_path: Path) -> None:
    shared = f"sqlite:{tmp_path / 'shared.db'}"
    with RunningSkep(tmp_path / "one", database=shared) as one:
        (tmp_path / "link.db").symlink_to(tmp_path / "shared.db")
        for name in ("shared.db", "link.db"):
            done = start(tmp_path / "two", "--database", f"sqlite:{tmp_path / name}")
            assert done.returncode == 7
            assert f"another Skep (process {one.process.pid}) has the database" in done.stderr
            assert "Traceback" not in done.stderr
        one.kill()
        one.start()  # nothing is left of the lock


def test_a_second_skep_on_the_same_folder(skep: RunningSkep) -> None:
    done = start(skep.data)
    assert done.returncode != 0
    assert f"another Skep (process {skep.process.pid}) is running" in done.stderr
    assert "Traceback" not in done.stderr
    assert skep.get("/healthz")[0] == 200


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    data = tmp_path / "a b%20#é" / "data"
    with Forge(tmp_path / "forge") as forge, RunningSkep(data) as skep:
        forge.create("one", {"a.txt": b"alpha"})
        skep.cli("source", "add", forge.url("one"), "--wait")
        assert "a.txt" in skep.cli("search", "alpha").stdout
        assert (data / "worker" / "worker.db").exists() and (data / "link.sock").exists()


def test_an_unwritable_data_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    if os.geteuid() == 0:
        # root writes anywhere; a file where a folder should be stops root too
        (tmp_path / "file").touch()
        refused(start(tmp_path / "file" / "data"), "cannot be used")
    else:
        refused(start(closed / "data"), "cannot be used")


def test_a_full_disk_at_start(tmp_path: Path) -> None:
    """The data folder is a file system of two pages, already used up."""
    data = tmp_path / "small"
    data.mkdir()
    fill = f'mount -t tmpfs -o size=8k none {data} && head -c 8192 /dev/zero > {data}/filler; exec "$@"'
    done = start(data, before=("unshare", "-rm", "sh", "-c", fill, "sh"))
    assert done.returncode != 0
    assert "is full" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("database", "oracle://x", "scheme"),
        ("listen", "nowhere", "HOST:PORT"),
        ("allow_networks", "home", "SKEP_ALLOW_NETWORKS"),
        ("poll_min", "soon", "SKEP_POLL_MIN"),
    ],
)
def test_senseless_settings(tmp_path: Path, setting: str, value: str, words: str) -> None:
    args = ("--listen", value) if setting == "listen" else ()
    refused(start(tmp_path, *args, settings={setting: value}), words)


def test_a_database_that_is_away(tmp_path: Path) -> None:
    port = free_port()
    done = start(tmp_path, settings={"database": f"postgresql://someone:secret@127.0.0.1:{port}/skep"})
    assert done.returncode == 5
    assert f"{port}" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
