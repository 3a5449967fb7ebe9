"""Credentials are shown to the upstream they are for, and to nobody else."""

import msgspec
import pytest

from skep.net.urls import parse
from skep.sources.credentials import Keyring
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure, Key
from tests.support.forge import Fault, Forge
from tests.support.forge.follower import Follow, Follower

TOKEN = "tok-7f3e"


def key(forge: Forge, **changes: object) -> Key:
    made = Key("ours", f"127.0.0.1:{forge.port}", "", "robot", TOKEN, False)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def locked(forge: Forge, follow: Follow) -> Follower:
    forge.create("org/secret", {"a": b"1\n"})
    forge.fault("org/secret", Fault(auth=f"robot:{TOKEN}"))
    follower = follow(forge.url("org/secret"))
    follower.held = msgspec.structs.replace(follower.held, visibility="private")
    return follower


async def test_look_and_fetch_with_a_credential(forge: Forge, kind: GitKind, locked: Follower) -> None:
    assert (await locked.fail()).kind == "auth"
    kind.unlock([key(forge)])
    versions = await locked.succeed()
    assert versions["refs/heads/main"]
    assert not any(TOKEN in path.read_text("latin-1") for path in locked.folder.rglob("*") if path.is_file())


async def test_a_refused_credential_is_named(forge: Forge, kind: GitKind, locked: Follower) -> None:
    kind.unlock([key(forge, token="wrong-one")])
    failure = await locked.fail()
    assert (failure.kind, failure.credential) == ("auth", "ours")
    assert "'ours' is not accepted" in failure.message
    locked.held = msgspec.structs.replace(locked.held, batches=3)
    failure = await locked.fail()
    assert "no longer accepted" in failure.message
    assert "wrong-one" not in failure.message
    kind.unlock([key(forge)])
    await locked.succeed()


async def test_a_token_that_ends_between_look_and_fetch(forge: Forge, kind: GitKind, locked: Follower) -> None:
    kind.unlock([key(forge)])
    look = await locked.look()
    forge.fault("org/secret", Fault(auth="robot:another"))
    found = await kind.fetch(locked.held, look, lambda _: None)  # type: ignore[arg-type]
    assert isinstance(found, Failure)
    assert (found.kind, found.credential) == ("auth", "ours")
    assert TOKEN not in found.message


async def test_it_goes_to_its_own_host_only(forge: Forge, kind: GitKind, follow: Follow) -> None:
    forge.create("open", {"a": b"1\n"})
    held = follow(forge.url("open"))
    for other in ("127.0.0.1:1", "127.0.0.1", "localhost"):
        kind.unlock([key(forge, host=other, public=True)])
        held.held = msgspec.structs.replace(held.held, seen="")
        await held.succeed()
    assert not any("Authorization" in request.headers for request in forge.requests)
    forge.fault("open", Fault(redirect="http://127.0.0.1:1/elsewhere"))
    kind.unlock([key(forge, public=True)])
    held.held = msgspec.structs.replace(held.held, seen="")
    assert (await held.fail()).kind == "gone"  # redirects are not followed, so nobody else sees the header


@pytest.mark.parametrize(
    ("url", "visibility", "changes", "used"),
    [
        ("https://h.org/a/b", "private", {}, True),
        ("https://h.org/a/b", "public", {}, False),
        ("https://h.org/a/b", "public", {"public": True}, True),
        ("https://h.org/a/b", "public", {"source": "src_1"}, True),
        ("https://h.org/a/b", "private", {"source": "src_2"}, False),
        ("https://evil.org/a/b", "private", {"source": "src_1"}, False),
        ("https://h.org.evil.org/a/b", "private", {}, False),
        ("https://h.org:8443/a/b", "private", {}, False),
        ("http://h.org/a/b", "private", {}, False),
        ("git://h.org/a/b", "private", {}, False),
        ("git@h.org:a/b", "private", {}, False),
        ("/h.org/a/b", "private", {}, False),
    ],
)
def test_who_gets_it(follow: Follow, url: str, visibility: str, changes: dict[str, object], used: bool) -> None:
    held = msgspec.structs.replace(follow(url).held, source="src_1", visibility=visibility)
    keyring = Keyring()
    keyring.fill([msgspec.structs.replace(Key("k", "h.org", "", "u", TOKEN, False), **changes)])
    assert (keyring.find(held, parse(url)) is not None) is used


def test_a_key_does_not_print_its_secret(forge: Forge) -> None:
    assert TOKEN not in f"{key(forge)!r} {key(forge)} {[key(forge)]}"
