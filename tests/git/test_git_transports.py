"""git:// and ssh go by a git process, pinned to the address that was checked."""

import asyncio
import os
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.sources.git.source_type import GitKind
from skep.sources.source_type import Same
from skep.testing.server import free_port, listening
from tests.support.forge import Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[int]:
    port = free_port()
    base = tmp_path / "daemon"
    base.mkdir()
    flags = ["--export-all", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={base}"]
    program = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-daemon"
    child = await asyncio.create_subprocess_exec(program, *flags, str(base), stderr=subprocess.DEVNULL)
    await listening(port)
    yield port
    child.terminate()
    await child.wait()


async def test_git_daemon(daemon: int, tmp_path: Path, follow: Follow, upstream: Upstream) -> None:
    repo = Repo.init(tmp_path / "daemon/x.git")
    repo.commit({"a": b"1"})
    one = follow(f"git://127.0.0.1:{daemon}/x.git")
    assert await one.succeed() == upstream(repo)
    assert isinstance(await one.look(), Same)
    repo.commit({"a": b"2"})
    assert await one.succeed() == upstream(repo)
    failure = await follow(f"git://127.0.0.1:{daemon}/none.git").fail()
    assert failure.kind in {"gone", "not_git"}, failure


async def test_a_name_for_git_daemon_is_pinned(daemon: int, tmp_path: Path, data: Path, upstream: Upstream) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    repo = Repo.init(tmp_path / "daemon/x.git")
    repo.commit({"a": b"1"})
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",)), data, SystemClock(0), lookup=lookup)
    assert await Follower(kind, f"git://only-our.example:{daemon}/x.git").succeed() == upstream(repo)
    await kind.close()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ssh, as there need not be a server: notes what it is asked and runs the command here."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "ssh"
    asked = tmp_path / "asked"
    script.write_text(
        f'#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; last=$word; done >> {shlex.quote(str(asked))}\n'
        'for word in "$@"; do last=$word; done\nexec sh -c "$last"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return asked


async def test_ssh_is_guarded(ssh: Path, tmp_path: Path, data: Path, upstream: Upstream) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["192.0.2.7"]

    repo = Repo.init(tmp_path / "far/x.git")
    repo.commit({"a": b"1"})
    kind = GitKind(Settings(allow_networks=("192.0.2.0/24",)), data, SystemClock(0), lookup=lookup)
    one = Follower(kind, f"ssh://git@far.example:2222{repo.folder}")
    assert await one.succeed() == upstream(repo)
    words = ssh.read_text().splitlines()
    for option in ("BatchMode=yes", "StrictHostKeyChecking=accept-new", "HostName=192.0.2.7", "ForwardAgent=no"):
        assert f"-o{option}" in words
    assert f"-oUserKnownHostsFile={data / 'known_hosts'}" in words
    assert "git@far.example" in words and "2222" in words
    await kind.close()


async def test_ssh_to_a_forbidden_address_is_never_started(ssh: Path, data: Path) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["10.0.0.7"]

    kind = GitKind(Settings(), data, SystemClock(0), lookup=lookup)
    failure = await Follower(kind, "git@inside.example:x/y").fail()
    assert failure.kind == "blocked" and "10.0.0.7" in failure.message
    assert not ssh.exists()
    await kind.close()


async def test_without_git_there_is_a_clear_word(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = await follow(str(tmp_path)).fail()
    assert failure.kind == "internal" and "git is not installed" in failure.message
