"""ssh, with a real server: keys from an agent, host keys remembered at first sight and then insisted on."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from skep.sources.source_type import Same
from skep.testing.server import free_port, listening
from tests.support.forge import Repo
from tests.support.forge.follower import Follow

Upstream = Callable[[Repo], dict[str, str]]


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


class Sshd:
    """A server of one's own on a free port, until `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.skip("there is no sshd; scripts/test-needs installs it")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root goes when it gives its rights away
        words = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.folder / "host",
            "AuthorizedKeysFile": self.folder / "mine.pub",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in words.items()))
        self._child = await asyncio.create_subprocess_exec(
            program, "-D", "-e", "-f", str(config), stderr=subprocess.DEVNULL
        )
        await listening(self.port, 60)

    async def stop(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            await self._child.wait()


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    make_key(folder / "host")
    make_key(folder / "mine")
    server = Sshd(folder)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def agent(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Holds the key that the server knows, as the user's own agent would."""
    path = sshd.folder / "agent"
    child = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(path), stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    async with asyncio.timeout(60):
        while await (await asyncio.create_subprocess_exec("ssh-add", "-q", str(sshd.folder / "mine"))).wait():
            await asyncio.sleep(0.05)  # it does not listen yet
    yield
    child.terminate()
    await child.wait()


def url_of(sshd: Sshd, repo: Repo) -> str:
    import getpass

    return f"ssh://{getpass.getuser()}@127.0.0.1:{sshd.port}{repo.folder}"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.init(tmp_path / "far/x.git")
    repo.commit({"a": b"1"})
    return repo


@pytest.mark.usefixtures("agent")
async def test_followed_over_ssh(sshd: Sshd, repo: Repo, follow: Follow, upstream: Upstream) -> None:
    one = follow(url_of(sshd, repo))
    assert await one.succeed() == upstream(repo)
    assert isinstance(await one.look(), Same)
    repo.commit({"a": b"2"})
    repo.branch("-x")
    assert await one.succeed() == upstream(repo)
    one.fsck()
    failure = await follow(url_of(sshd, Repo(repo.folder.with_name("none.git")))).fail()
    assert failure.kind in {"not_git", "gone"}, failure
    await sshd.stop()
    assert (await one.fail()).kind == "network"


async def test_without_a_key_it_is_a_matter_of_access(sshd: Sshd, repo: Repo, follow: Follow) -> None:
    failure = await follow(url_of(sshd, repo)).fail()
    assert failure.kind == "auth" and "key" in failure.message, failure


@pytest.mark.usefixtures("agent")
async def test_another_host_key_is_somebody_else(sshd: Sshd, repo: Repo, follow: Follow, data: Path) -> None:
    one = follow(url_of(sshd, repo))
    await one.succeed()
    assert (data / "known_hosts").read_text().startswith(f"[127.0.0.1]:{sshd.port} ")
    await sshd.stop()
    for name in ("host", "host.pub"):
        (sshd.folder / name).unlink()
    make_key(sshd.folder / "host")
    await sshd.start()
    failure = await one.fail()
    assert failure.kind == "blocked" and "ssh key" in failure.message, failure
