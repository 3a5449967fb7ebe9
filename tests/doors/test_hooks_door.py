"""Webhooks through the door: who is believed, what is remembered, and what comes of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import httpx
import pytest

from skep.base.caller import SYSTEM
from skep.sources import testing
from skep.sources.model import CredentialSpec
from skep.sources.testing import Delivery
from skep.storage.database import Database

from .conftest import Door

SECRET = "a-hook-secret"
REPO = "https://forge.example.org/org/repo"
FORGES: dict[str, Callable[..., Delivery]] = {
    "github": testing.github,
    "gitlab": testing.gitlab,
    "gitea": testing.gitea,
    "gitee": lambda *args, **kwargs: testing.gitee(*args, at=time.time(), **kwargs),
}


def database(door: Door) -> Database:
    return door.core.sources._db


class Watched:
    """A door with one source, and a worker that is ordered to fetch it."""

    def __init__(self, door: Door, client: httpx.AsyncClient, source: str) -> None:
        self.door, self.client, self.source = door, client, source

    async def send(self, forge: str, delivery: Delivery, **headers: str) -> int:
        wanted = {**delivery.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        answer = await self.client.post(f"/hooks/{forge}", content=delivery.body, headers=wanted)
        return answer.status_code

    async def ordered(self) -> int:
        """How often a fetch was ordered since the last question."""
        rows = await database(self.door).read("SELECT n FROM ordered WHERE kind = 'fetch'")
        await database(self.door).write(lambda tx: tx.rows("DELETE FROM ordered"))
        return len(rows)


@pytest.fixture
async def watched(door: Door) -> AsyncIterator[Watched]:
    await door.core.workers._fleet.join("wrk_1", "w" * 64, 1, "worker")
    source = (await door.core.sources.add(SYSTEM, REPO)).source
    await door.core.credentials.put(SYSTEM, CredentialSpec("hook", "forge.example.org", use="hook"), SECRET)
    async with door.client() as client:
        yield Watched(door, client, source.id)


@pytest.mark.parametrize("forge", FORGES)
async def test_a_signed_push_leads_to_a_fetch(watched: Watched, forge: str) -> None:
    delivery = FORGES[forge](REPO, SECRET)
    assert await watched.send(forge, delivery) == 202
    assert await watched.ordered() == 1
    # a repeat, with the same id or another one, is the same delivery
    assert await watched.send(forge, delivery) == 202
    assert await watched.send(forge, delivery, X_GitHub_Delivery="other", X_Gitea_Delivery="other") == 202
    assert await watched.ordered() == 0
    assert await watched.send(forge, FORGES[forge](REPO, SECRET)) == 202
    assert await watched.ordered() == 1


@pytest.mark.parametrize("forge", FORGES)
async def test_without_the_secret_nothing_is_told(watched: Watched, forge: str) -> None:
    for url in (REPO, "https://forge.example.org/no/such"):
        assert await watched.send(forge, FORGES[forge](url, "another-secret")) == 401
    signed = FORGES[forge](REPO, SECRET)
    bare = Delivery({"Content-Type": "application/json", **_event(signed)}, signed.body)
    assert await watched.send(forge, bare) == 401
    if forge in ("github", "gitea"):  # the others sign no body
        assert await watched.send(forge, Delivery(signed.headers, signed.body.replace(b"main", b"evil"))) == 401
    assert await watched.ordered() == 0
    # what is not mirrored here is not told either, though the sender is known
    assert await watched.send(forge, FORGES[forge]("https://forge.example.org/no/such", SECRET)) == 202
    assert await watched.ordered() == 0
    assert await watched.send(forge, signed) == 202  # refused before, and not remembered for that


def _event(delivery: Delivery) -> dict[str, str]:
    return {name: value for name, value in delivery.headers.items() if name.endswith("-Event")}


async def test_which_events_matter(watched: Watched) -> None:
    assert await watched.send("github", testing.github(REPO, SECRET, event="ping")) == 202
    assert await watched.send("github", testing.github(REPO, SECRET, event="issues")) == 202
    assert await watched.ordered() == 0
    assert await watched.send("github", testing.github(REPO, SECRET, event="delete")) == 202
    assert await watched.ordered() == 1
    assert await watched.send("github", testing.github(REPO, SECRET, form=True)) == 202
    assert await watched.ordered() == 1
    assert await watched.send("gitlab", testing.gitlab(REPO, SECRET, event="Tag Push Hook")) == 202
    assert await watched.ordered() == 1
    assert await watched.send("gitee", testing.gitee(REPO, SECRET, at=1.0, password=True)) == 202
    assert await watched.ordered() == 1


async def test_an_old_signature_of_gitee_is_none(watched: Watched) -> None:
    for at in (time.time() - 7200, time.time() + 7200):
        assert await watched.send("gitee", testing.gitee(REPO, SECRET, at=at)) == 401
    stamped = testing.gitee(REPO, SECRET, at=time.time())
    for stamp in ("", "-1", "9" * 30, "x"):
        assert await watched.send("gitee", stamped, X_Gitee_Timestamp=stamp) == 401


async def test_the_same_repository_by_ssh(watched: Watched) -> None:
    other = (await watched.door.core.sources.add(SYSTEM, "git@forge.example.org:org/repo.git")).source
    await watched.ordered()
    assert await watched.send("gitlab", testing.gitlab(REPO, SECRET)) == 202
    rows = await database(watched.door).read("SELECT source FROM ordered WHERE kind = 'fetch'")
    assert {row["source"] for row in rows} == {watched.source, other.id}


async def test_a_secret_moves_only_what_it_is_for(watched: Watched) -> None:
    put = watched.door.core.credentials.put
    other = (await watched.door.core.sources.add(SYSTEM, "https://else.example.org/org/repo")).source
    mine = CredentialSpec("mine", "else.example.org", source=other.id, use="hook")
    await put(SYSTEM, mine, "secret-of-one")
    assert await watched.send("github", testing.github(REPO, "secret-of-one")) == 202
    assert await watched.ordered() == 0
    assert await watched.send("github", testing.github(other.url, "secret-of-one")) == 202
    assert await watched.ordered() == 1
    await put(SYSTEM, CredentialSpec("token", "forge.example.org"), "for-fetching-only")
    assert await watched.send("github", testing.github(REPO, "for-fetching-only")) == 401


async def test_bad_requests(watched: Watched) -> None:
    push, secret = testing.github(REPO, SECRET), testing.gitlab(REPO, SECRET).headers
    assert await watched.send("bitbucket", push) == 404
    assert await watched.send("github", push, Content_Type="text/xml") == 400
    assert await watched.send("github", Delivery(push.headers, b" " * 5_000_001)) == 413
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    for body in (b"{", b'{"repository": "x"}', b'{"x": ' + b"[" * 100_000, b"\xff"):
        assert await watched.send("gitlab", Delivery(secret, body)) == 400
        assert await watched.send("github", Delivery(push.headers, body)) == 401, "it is not signed, so not decoded"
    assert await watched.send("github", Delivery(push.headers, b"a=1&" * 100), **form) == 401
    assert await watched.send("gitlab", push) == 401
    assert (await watched.client.get("/hooks/github")).status_code == 405
    odd = json.dumps({"repository": {"clone_url": "ext::sh -c x", "html_url": "x" * 10_000}}).encode()
    assert await watched.send("gitlab", Delivery(testing.gitlab(REPO, SECRET).headers, odd)) == 202
    assert await watched.ordered() == 0


async def test_a_burst_is_one_order(watched: Watched) -> None:
    await watched.ordered()
    sends = [partial(watched.send, "github", testing.github(REPO, SECRET)) for _ in range(500)]
    answers = await asyncio.gather(*(send() for send in sends))
    assert set(answers) == {202}
    assert await watched.ordered() == 1


async def test_deliveries_are_forgotten_after_a_day(watched: Watched) -> None:
    await watched.send("github", testing.github(REPO, SECRET))
    db = database(watched.door)
    await db.write(lambda tx: tx.rows("UPDATE delivery SET at = at - 90000"))
    await watched.send("github", testing.github(REPO, SECRET))
    assert len(await db.read("SELECT id FROM delivery")) == 2
