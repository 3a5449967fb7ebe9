"""HTTP/2 where a server offers it, and redirects that stay at home."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.net.urls import parse
from skep.sources.git.ls_refs import nearby
from skep.sources.git.source_type import GitKind
from skep.sources.source_type import Same
from skep.testing.server import free_port, listening
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow, Follower
from tests.support.forge.server import make_certificate

Upstream = Callable[[Repo], dict[str, str]]
INFO = "/info/refs?service=git-upload-pack"


@pytest.fixture
async def front(forge: Forge, tmp_path: Path) -> AsyncIterator[int]:
    """TLS and HTTP/2 before the forge, as the large forges have it."""
    program = shutil.which("nghttpx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("there is no nghttpx; scripts/test-needs installs it")
    pem = tmp_path / "front.pem"
    make_certificate(pem)
    port = free_port()
    places = [f"--frontend=127.0.0.1,{port}", f"--backend=127.0.0.1,{forge.port}"]
    child = await asyncio.create_subprocess_exec(
        *(program, "--conf=/dev/null", "--workers=1", "--errorlog-file=/dev/null", *places, str(pem), str(pem)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    await listening(port)
    yield port
    child.terminate()
    await child.wait()


async def test_looks_speak_http2_where_it_is_offered(
    front: int, forge: Forge, data: Path, tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "front.pem"))
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",)), data, SystemClock(0))
    repos = [forge.create(f"org/r{n}", {"a": b"%d" % n}) for n in range(8)]
    ones = [Follower(kind, f"https://127.0.0.1:{front}/org/r{n}") for n in range(8)]
    for one, repo in zip(ones, repos, strict=True):
        assert await one.succeed() == upstream(repo)
    forge.requests.clear()
    assert all(isinstance(look, Same) for look in await asyncio.gather(*(one.look() for one in ones * 5)))
    assert len(forge.requests) == 40
    assert {request.headers["Via"] for request in forge.requests} == {"2 nghttpx"}
    await kind.close()


async def test_a_renamed_repository_is_followed_at_its_host(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/new", {"a": b"1"})
    forge.fault("org/old", Fault(redirect=forge.url(f"org/new{INFO}")))
    one = follow(forge.url("org/old"))
    assert await one.succeed() == upstream(repo)
    repo.commit({"a": b"2"})
    forge.requests.clear()
    assert await one.succeed() == upstream(repo)
    assert {request.path.split("/")[2] for request in forge.requests} == {"new"}, "it is asked there at once"
    forge.fault("org/new", Fault(status=404))
    assert (await one.fail()).kind == "gone"
    forge.fault("org/new", None)
    forge.fault("org/old", None)
    forge.create("org/old", {"b": b"1"})
    forge.requests.clear()
    await one.look()
    assert {request.path.split("/")[2] for request in forge.requests} == {"old"}, "after a failure it begins anew"


async def test_redirects_in_circles_end(forge: Forge, follow: Follow) -> None:
    forge.fault("org/a", Fault(redirect=forge.url(f"org/b{INFO}")))
    forge.fault("org/b", Fault(redirect=forge.url(f"org/a{INFO}")))
    failure = await follow(forge.url("org/a")).fail()
    assert failure.kind == "gone" and "circles" in failure.message
    assert len(forge.requests) <= 8


async def test_redirects_to_elsewhere_are_not_followed(forge: Forge, follow: Follow, tmp_path: Path) -> None:
    with Forge(tmp_path / "other") as other:
        other.create("org/repo", {"a": b"1"})
        for place in (other.url("org/repo"), f"http://localhost:{forge.port}/org/x", "file:///etc", "ext::sh"):
            forge.fault("org/repo", Fault(redirect=place + INFO))
            failure = await follow(forge.url("org/repo")).fail()
            assert failure.kind in {"gone", "not_git"}, failure
        assert other.requests == []


@pytest.mark.parametrize(
    ("url", "redirect", "followed"),
    [
        ("https://h.org/a", "https://h.org/b", True),
        ("https://h.org/a", "https://h.org/a.git", True),
        ("https://h.org/a", "https://H.org:443/b", True),
        ("http://h.org/a", "https://h.org/a", True),
        ("https://h.org/a", "http://h.org/a", False),
        ("https://h.org/a", "https://h.org:8443/a", False),
        ("http://h.org:8080/a", "https://h.org/a", False),
        ("https://h.org/a", "https://evil.org/a", False),
        ("https://h.org/a", "https://h.org.evil.org/a", False),
        ("https://h.org/a", "https://me:secret@h.org/b", False),
        ("https://h.org/a", "https://h.org@evil.org/b", False),
        ("https://h.org/a", "https://169.254.169.254/b", False),
        ("https://h.org/a", "ssh://h.org/a", False),
        ("https://h.org/a", "file:///etc", False),
        ("https://h.org/a", "https://h.org/a", False),
        ("https://h.org/a", "https://h.org/../x", False),
        ("https://h.org/a", "", False),
    ],
)
def test_which_redirects_stay_at_home(url: str, redirect: str, followed: bool) -> None:
    assert bool(nearby(parse(url), redirect + INFO)) is followed
    assert nearby(parse(url), redirect) is None, "only the place where git would ask"
