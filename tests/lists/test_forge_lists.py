"""Organisations and groups by a forge's API: pages, ETags, renames, filters, and everything a forge may refuse."""

from collections.abc import Iterator
from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput
from skep.sources.lists.hosts import place_of
from skep.sources.model import Key
from tests.lists.conftest import TOKEN, ListHouse
from tests.support.forge.api import ForgeApi


@pytest.fixture
def api() -> Iterator[ForgeApi]:
    with ForgeApi(token=TOKEN) as running:
        yield running


async def names(house: ListHouse) -> list[str]:
    return sorted(name.removeprefix("code.example.org/") for name in await house.named())


async def again(house: ListHouse) -> None:
    house.clock.time += 3_601
    await house.follower.step()


@pytest.mark.parametrize(
    ("kind", "owner"), [("github", "org"), ("gitlab", "group/sub"), ("gitee", "org"), ("gitea", "org")]
)
async def test_followed(house: ListHouse, api: ForgeApi, kind: str, owner: str) -> None:
    for id in range(1, 6):
        api.put(owner, id, f"org/r{id}")
    listed = await house.lists.add(SYSTEM, f"{kind}:{api.url}/{owner}")
    await house.follower.step()
    assert await names(house) == [f"org/r{id}" for id in range(1, 6)]
    api.requests.clear()
    await house.follower.step()
    assert api.requests == []
    await again(house)
    assert [status for _, status in api.requests] == [304] * 4
    before = (await house.named())["code.example.org/org/r2"]["id"]
    api.put(owner, 2, "org/renamed")
    api.put(owner, 9, "org/new", private=True)
    del api.repositories[owner][4]
    await again(house)
    assert await names(house) == ["org/new", "org/r1", "org/r3", "org/r5", "org/renamed"]
    named = await house.named()
    assert named["code.example.org/org/renamed"]["id"] == before
    assert named["code.example.org/org/new"]["visibility"] == "private"
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current"


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"size": 5}, 5 * 1024),
        ({"statistics": {"repository_size": 7}, "size": 0}, 7),
        ({"size": -3, "statistics": "none"}, 0),
        ({"size": None, "statistics": None}, 0),
        ({"size": "big"}, 0),
        ({"size": 1 << 70}, 1 << 50),
    ],
)
async def test_sizes_go_to_the_holder(house: ListHouse, api: ForgeApi, said: dict[str, Any], size: int) -> None:
    api.put("org", 1, "org/one", **said)
    await house.lists.add(SYSTEM, f"gitea:{api.url}/org")
    await house.follower.step()
    held = await house.sources.held((await house.named())["code.example.org/org/one"]["id"])
    assert held and held.size == size


async def test_forks_and_archived_left_out(house: ListHouse, api: ForgeApi) -> None:
    api.put("org", 1, "org/own")
    api.put("org", 2, "org/fork", fork=True)
    api.put("org", 3, "org/fork2", forked_from_project={"id": 7})
    api.put("org", 4, "org/old", archived=True)
    await house.lists.add(SYSTEM, f"github:{api.url}/org", forks=False, archived=False)
    await house.follower.step()
    assert await names(house) == ["org/own"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ((401, {}, b""), "skep credential set"),
        ((404, {}, b""), "knows no"),
        ((429, {"Retry-After": "120"}, b""), "too often"),
        ((500, {}, b""), "status 500"),
        ((200, {}, b"<html>"), "something else"),
        ((302, {"Location": "http://169.254.169.254/latest"}, b""), "another host"),
        ((302, {"Location": "/round"}, b""), "circles"),
    ],
)
async def test_a_forge_that_does_not_tell_removes_nothing(
    house: ListHouse, api: ForgeApi, fault: tuple[int, dict[str, str], bytes], said: str
) -> None:
    api.put("org", 1, "org/one")
    listed = await house.lists.add(SYSTEM, f"github:{api.url}/org")
    await house.follower.step()
    api.fault = fault
    await again(house)
    shown = await house.lists.show(SYSTEM, listed.id)
    assert shown.state == "failing" and said in shown.failure and TOKEN not in shown.failure
    assert await names(house) == ["org/one"]
    api.fault = None
    await again(house)
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current"


async def test_an_organisation_that_lost_much_waits(house: ListHouse, api: ForgeApi) -> None:
    for id in range(30):
        api.put("org", id, f"org/r{id:02}")
    listed = await house.lists.add(SYSTEM, f"gitea:{api.url}/org")
    await house.follower.step()
    for id in range(15):
        del api.repositories["org"][id]
    await again(house)
    shown = await house.lists.show(SYSTEM, listed.id)
    assert (shown.state, shown.waiting) == ("waiting", 15) and len(await names(house)) == 30
    await house.lists.confirm(SYSTEM, listed.id, shown.version)
    await house.follower.step()
    assert len(await names(house)) == 15


async def test_when_one_token_is_at_its_limit_the_next_is_shown(house: ListHouse, api: ForgeApi) -> None:
    host = api.url.removeprefix("http://")
    house.keys[host] = [Key(name, host, "", "u", name, public=False) for name in ("first", "second")]
    api.token = "second"
    api.put("org", 1, "org/one")
    api.limited = {"first"}
    await house.lists.add(SYSTEM, f"github:{api.url}/org")
    await house.follower.step()
    assert await names(house) == ["org/one"]
    assert [status for _, status in api.requests] == [429, 200, 200]  # the first one is left alone from then on
    api.limited = {"first", "second"}
    await again(house)
    assert await names(house) == ["org/one"]
    assert [shown.failure for shown in await house.lists.list(SYSTEM)] == [f"{host} says we ask too often"]


async def test_private_addresses_are_not_asked(house: ListHouse) -> None:
    listed = await house.lists.add(SYSTEM, "gitea:http://10.0.0.1/org")
    await house.follower.step()
    assert "private address" in (await house.lists.show(SYSTEM, listed.id)).failure


@pytest.mark.parametrize("text", ["gitea:org", "github:", "github:a/b", "gitlab:a//b", "github:../x", "github:a b"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(BadInput):
        place_of(text)


def test_known_homes() -> None:
    found = place_of("github:org")
    assert found and found.path(0, 1).startswith("https://api.github.com/orgs/org/repos?")
    assert place_of("https://github.com/org/repo") is None
