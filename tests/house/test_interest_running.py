"""Searches and clones bring a look forward, and who waits for a commit is told: through the whole of Skep."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.house.running import RunningSkep, environment
from tests.support.forge import Forge

PATIENCE = 120.0


@pytest.fixture(scope="module")
def skep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """Nobody is looked at for hours, unless somebody is interested."""
    with RunningSkep(tmp_path_factory.mktemp("interest") / "data", poll_min=0.1, poll_max=7200.0) as running:
        yield running


def shown(skep: RunningSkep, id: str) -> dict[str, Any]:
    status, source = skep.get(f"/api/v1/sources/{id}")
    assert status == 200
    return dict(source)


def added(skep: RunningSkep, url: str) -> str:
    skep.cli("source", "add", url, "--wait")
    return str(skep.rows("source", "show", url)[0]["id"])


def searched(skep: RunningSkep, id: str) -> None:
    query = urllib.parse.quote(f'needle repo:"{shown(skep, id)["name"]}"')
    urllib.request.urlopen(f"{skep.url}/?q={query}", timeout=60).close()


def cloned(skep: RunningSkep, id: str) -> None:
    where = f"{skep.url}/git/{id}.git"
    subprocess.run(["git", "ls-remote", where], env=environment({}), capture_output=True, check=True)


@pytest.mark.parametrize("use", [searched, cloned], ids=["search", "clone"])
def test_interest_brings_a_look_forward(
    skep: RunningSkep, forge: Forge, use: Callable[[RunningSkep, str], None], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    for kind in ("used", "other"):
        forge.create(f"org/{kind}-{name}", {"a.txt": b"needle\n"})
    used, other = (added(skep, forge.url(f"org/{kind}-{name}")) for kind in ("used", "other"))
    before = {id: shown(skep, id)["last_looked"] for id in (used, other)}
    end = time.monotonic() + PATIENCE
    while shown(skep, used)["last_looked"] == before[used]:
        assert time.monotonic() < end, skep.tail()
        use(skep, used)
        # a worker hears of interest once a minute, and whenever credentials change
        body = json.dumps({"host": "example.org", "token": f"t{time.monotonic_ns()}"}).encode()
        headers = {"Authorization": f"Bearer {skep.token}", "Content-Type": "application/json"}
        bell = urllib.request.Request(f"{skep.url}/api/v1/credentials/bell", body, headers, method="PUT")
        urllib.request.urlopen(bell, timeout=30).close()
    assert shown(skep, other)["last_looked"] == before[other]


def test_waiting_for_a_commit(skep: RunningSkep, forge: Forge) -> None:
    repo, url = forge.create("org/awaited", {"a.txt": b"1\n"}), forge.url("org/awaited")
    id = added(skep, url)
    unknown = "0123456789" * 4
    status, answer = skep.get(f"/api/v1/sources/{id}/wait?commit={unknown}&timeout=0.2")
    assert (status, answer["settled"]) == (200, False)
    commit = repo.commit({"b.txt": b"awaited words\n"})
    skep.cli("source", "fetch", url, "--commit", commit)
    assert "awaited words" in skep.cli("search", "awaited words").stdout
    # an older one is part of what is searchable, a short one is enough, and one of another branch only has to be here
    first = repo.git("rev-parse", "main~1").decode().strip()
    side = repo.commit({"c.txt": b"aside\n"}, branch="side")
    assert skep.get(f"/api/v1/sources/{id}/wait?commit={first[:12]}&timeout=20")[1]["settled"] is True
    skep.cli("source", "fetch", url, "--commit", side)
