"""No URL reaches what only this machine can reach, however it is spelled and whatever the name server says."""

from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import BadInput, NotAllowed
from skep.config.settings import Settings
from skep.net.guard import Guard
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure
from skep.sources.source_type import Moved
from tests.support.forge import Forge
from tests.support.forge.follower import Follower

PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "10.1.2.3",
    "192.168.1.1",
    "172.16.0.1",
    "100.64.0.1",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[fc00::1]",
    "[2002:7f00:1::]",
    "[64:ff9b::7f00:1]",
    "[::127.0.0.1]",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "[ff02::1]",
    "198.18.0.1",
    "１２７.０.０.１",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
]
NEVER = [
    "169.254.169.254",
    "169.254.1.1",
    "2852039166",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "[64:ff9b::a9fe:a9fe]",
    "100.100.100.200",
    "metadata.google.internal",
    "[2002:a9fe:a9fe::]",
]
EVERYTHING = ("0.0.0.0/0", "::/0")


def guard(*networks: str, answers: dict[str, list[str]] | None = None) -> Guard:
    async def lookup(host: str, port: int) -> list[str]:
        return (answers or {})[host]

    return Guard(Settings(allow_networks=networks), SystemClock(0), local=False, lookup=lookup)


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_need_permission(host: str) -> None:
    with pytest.raises(NotAllowed) as error:
        guard().check_url(f"http://{host}/x")
    assert "allow_networks" in error.value.hint
    guard(*EVERYTHING).check_url(f"http://{host}/x")


@pytest.mark.parametrize("host", NEVER)
def test_metadata_addresses_are_never_permitted(host: str) -> None:
    for networks in ((), EVERYTHING):
        with pytest.raises(NotAllowed):
            guard(*networks).check_url(f"http://{host}/latest")


def test_public_addresses_and_names_pass() -> None:
    for host in ("93.184.216.34", "[2606:2800:220:1::1]", "example.org"):
        guard().check_url(f"https://{host}/x")


def test_a_permitted_network_permits_itself_only() -> None:
    guard("192.168.1.0/24").check_url("http://192.168.1.7/x")
    guard("127.0.0.0/8").check_url("http://[::ffff:127.0.0.1]/x")
    with pytest.raises(NotAllowed):
        guard("192.168.1.0/24").check_url("http://192.168.2.7/x")
    with pytest.raises(BadInput, match="no network"):
        guard("home")


async def test_names_are_judged_by_all_their_addresses() -> None:
    answers = {"good": ["93.184.216.34"], "bad": ["93.184.216.34", "127.0.0.1"], "evil": ["169.254.169.254"]}
    assert await guard(answers=answers).resolve("good", 443) == ["93.184.216.34"]
    for host in ("bad", "evil"):
        with pytest.raises(NotAllowed, match=host):
            await guard(answers=answers).resolve(host, 443)
    with pytest.raises(NotAllowed):
        await guard(*EVERYTHING, answers=answers).resolve("evil", 443)


async def test_a_name_that_changes_its_mind_gains_nothing(forge: Forge, data: Path) -> None:
    """The name answers with a permitted address once; the connection and git's own are pinned to that answer."""
    repo = forge.create("org/repo", {"a": b"1"})
    asked = 0

    async def lookup(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1"] if asked == 1 else ["169.254.169.254"]

    settings = Settings(allow_networks=("127.0.0.0/8",))
    kind = GitKind(settings, data, SystemClock(0), lookup=lookup)
    one = Follower(kind, f"http://rebinding.example:{forge.port}/org/repo")
    assert (await one.succeed())["refs/heads/main"] == repo.refs()["refs/heads/main"]
    assert asked == 1
    await kind.close()
    kind = GitKind(settings, data, SystemClock(0), lookup=lookup)
    failure = await Follower(kind, f"http://rebinding.example:{forge.port}/org/repo").fail()
    assert failure.kind == "blocked" and "never" in failure.message
    await kind.close()


async def test_policy_holds_for_what_was_added_before_it_changed(forge: Forge, data: Path) -> None:
    forge.create("org/repo", {"a": b"1"})
    kind = GitKind(Settings(listen="0.0.0.0:1"), data, SystemClock(0))
    for url in (forge.url("org/repo"), str(forge.folder / "org/repo.git"), "ext::sh -c id", "ssh://127.0.0.1/x"):
        look = await Follower(kind, url).look()
        assert isinstance(look, Failure) and look.kind == "blocked", look
        one = Follower(kind, url)
        failure = await kind.fetch(one.held, Moved("", {"refs/heads/main": "0" * 40}), one.progress.append)
        assert isinstance(failure, Failure) and failure.kind == "blocked"
        assert not one.folder.exists()
    assert forge.requests == []
    await kind.close()


class Later:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.time = 1e9

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("scheme", ["http", "git", "ssh"])
async def test_a_name_that_turns_between_look_and_fetch(forge: Forge, data: Path, scheme: str) -> None:
    """What was permitted once is asked again after a minute: the fetch goes nowhere, and leaves nothing behind."""
    forge.create("org/repo", {"a": b"1"})
    answers = ["127.0.0.1"]
    clock = Later()

    async def lookup(host: str, port: int) -> list[str]:
        return answers

    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",)), data, clock, lookup=lookup)
    one = Follower(kind, f"{scheme}://turning.example:{forge.port}/org/repo")
    if scheme == "http":
        assert isinstance(await one.look(), Moved)
    answers[:] = ["127.0.0.1", "10.0.0.1"]
    clock.time += 120.0
    forge.requests.clear()
    for failure in (
        await one.look(),
        await kind.fetch(one.held, Moved("", {"refs/heads/main": "1" * 40}), one.progress.append),
    ):
        assert isinstance(failure, Failure) and failure.kind == "blocked" and "10.0.0.1" in failure.message, failure
    assert forge.requests == [] and not one.folder.exists()
    await kind.close()


async def test_names_for_this_machine_are_judged_by_where_they_lead() -> None:
    for host in ("localhost", "ip6-localhost", "LOCALHOST."):
        parts = guard().check_url(f"http://{host}/x")
        with pytest.raises(NotAllowed, match="private"):
            await guard(answers={parts.host: ["::1"]}).resolve(parts.host, 80)


async def test_a_host_without_an_address_is_a_failure_of_the_network(data: Path) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        raise TimeoutError

    kind = GitKind(Settings(), data, SystemClock(0), lookup=lookup)
    for url in ("https://nowhere.example/x", "git://nowhere.example/x", "ssh://nowhere.example/x"):
        look = await Follower(kind, url).look()
        assert isinstance(look, Failure) and look.kind == "network"
    await kind.close()
