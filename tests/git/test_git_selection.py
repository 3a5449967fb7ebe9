"""Which refs are mirrored: branches and tags, or what a source says."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from skep.base.errors import BadInput
from skep.sources.git.ls_refs import check_patterns, selection
from skep.sources.git.repository import read_all
from skep.sources.model import SourceSettings
from skep.sources.source_type import Same
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]


def select(one: Follower, *patterns: str) -> None:
    one.held = msgspec.structs.replace(one.held, settings=SourceSettings(refs=patterns or None))


def with_pulls(forge: Forge) -> Repo:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.commit({"a": b"2"}, branch="bot/one")
    repo.commit({"a": b"3"}, branch="release-1")
    repo.tag("v1")
    for n in range(3):
        repo.git("update-ref", f"refs/pull/{n}/head", "refs/heads/release-1")
        repo.git("update-ref", f"refs/pull/{n}/merge", "refs/heads/bot/one")
    return repo


@pytest.mark.parametrize("how", ["v2", "v0", "local"])
async def test_pull_requests_are_left_out_unless_asked_for(
    forge: Forge, follow: Follow, upstream: Upstream, how: str
) -> None:
    repo = with_pulls(forge)
    if how == "v0":
        forge.fault("", Fault(v0_only=True))
    one = follow(str(repo.folder) if how == "local" else forge.url("org/repo"))
    everything = upstream(repo)
    usual = {name: oid for name, oid in everything.items() if not name.startswith("refs/pull/")}
    assert await one.succeed() == usual
    select(one, "refs/heads/*", "^refs/heads/bot/*", "refs/pull/*/head")
    wanted = {n: oid for n, oid in everything.items() if n.endswith("/head") or n.startswith("refs/heads/")}
    del wanted["refs/heads/bot/one"]
    assert await one.succeed() == wanted | {"HEAD": "refs/heads/main"}
    assert isinstance(await one.look(), Same)
    repo.git("update-ref", "refs/pull/7/merge", "refs/heads/main")
    assert isinstance(await one.look(), Same), "what is not mirrored may move"
    repo.git("update-ref", "refs/pull/7/head", "refs/heads/main")
    assert "refs/pull/7/head" in await one.succeed()
    select(one)
    assert await one.succeed() == usual
    one.fsck()


async def test_a_narrow_choice_asks_nobody(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    for n in range(40):
        repo.branch(f"b{n}")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    select(one, "refs/heads/main")
    assert set(await one.succeed()) == {"HEAD", "refs/heads/main"}


async def test_the_default_branch_is_one_of_those_chosen(forge: Forge, follow: Follow) -> None:
    with_pulls(forge)
    one = follow(forge.url("org/repo"))
    select(one, "refs/heads/release-*")
    assert (await one.succeed())["HEAD"] == "refs/heads/release-1"


def test_patterns() -> None:
    chosen = selection(("refs/heads/*", "refs/pull/*/head", "^refs/heads/x*y"))
    yes = ["refs/heads/a", "refs/heads/a/b", "refs/pull/1/head", "refs/heads/xy2"]
    no = ["refs/tags/v1", "refs/pull/1/merge", "refs/pull/head", "refs/heads/xy", "refs/heads/x1y", "refs/headsx"]
    assert [name for name in (*yes, *no) if chosen.has(name)] == yes
    assert chosen.refspecs(force=True)[1:] == ["+refs/pull/*/head:refs/pull/*/head", "^refs/heads/x*y", "^refs/skep/*"]
    assert not chosen.exact and selection(None).exact and selection(None) is selection(None)


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "*", "^", "heads/*", "refs/heads/**", "refs/skep/*", "refs/heads/a b", "refs/heads/a:b", "+refs/heads/*"),
        *("refs/heads/a..b", "refs/heads/\n", "--upload-pack=x", "refs/heads/" + "x" * 2000, "^refs/heads/*"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput):
        check_patterns((pattern,))


async def test_refs_of_our_own_are_never_taken_from_upstream(forge: Forge, follow: Follow, data: Path) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.git("update-ref", "refs/skep/kept/20200101T000000Z/heads/x", "refs/heads/main")
    one = follow(forge.url("org/repo"))
    select(one, "refs/*")
    with pytest.raises(BadInput):
        check_patterns(("refs/skep/*",))
    assert set(await one.succeed()) == {"HEAD", "refs/heads/main"}
    assert set(read_all(one.folder)) == {"refs/heads/main"}
    assert isinstance(await one.look(), Same)
