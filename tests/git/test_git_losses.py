"""Nothing is lost because an upstream lost it: old tips stay under hidden names, and large losses wait for a person."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from skep.sources.git import repository
from skep.sources.git.browse import resolve
from skep.sources.git.repository import KEPT, MOST_KEPT, expired, kept_names
from skep.sources.model import SourceSettings
from tests.support.forge import Forge, Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]


def kept(one: Follower) -> dict[str, str]:
    """ref -> the old tip that is kept of it."""
    found = {name: oid for name, oid in repository.read_all(one.folder).items() if name.startswith(KEPT)}
    return {name.removeprefix(KEPT).partition("/")[2]: oid for name, oid in found.items()}


def with_settings(one: Follower, accepted: str = "", **settings: object) -> None:
    wishes = msgspec.convert(settings, SourceSettings)
    one.held = msgspec.structs.replace(one.held, settings=wishes, accepted=accepted)


async def test_a_force_push_leaves_the_old_tip_under_a_hidden_name(
    forge: Forge, follow: Follow, upstream: Upstream
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    old = repo.commit({"a": b"2"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    assert kept(one) == {}
    repo.force_push({"a": b"other"})
    assert await one.succeed() == upstream(repo)
    assert kept(one) == {"heads/main": old}
    hidden = next(name for name in repository.read_all(one.folder) if name.startswith(KEPT))
    assert await resolve(one.folder, hidden) is None
    assert await resolve(one.folder, old) == old
    one.fsck()


async def test_what_is_merged_is_not_kept_and_what_is_not_is(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.branch("merged")
    alone = repo.commit({"b": b"1"}, branch="alone")
    repo.tag("v1")
    repo.tag("v2", annotated=True)
    tags = repo.refs()
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.commit({"a": b"2"})
    repo.delete_branch("merged")
    repo.delete_branch("alone")
    repo.git("tag", "-d", "v2")
    repo.git("tag", "-f", "v1")
    assert await one.succeed() == upstream(repo)
    assert kept(one) == {"heads/alone": alone, "tags/v1": tags["refs/tags/v1"], "tags/v2": tags["refs/tags/v2"]}


async def test_followed_without_keeping_where_that_is_wanted(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    with_settings(one, force_push="follow")
    await one.succeed()
    repo.force_push({"a": b"other"})
    assert await one.succeed() == upstream(repo)
    assert kept(one) == {}


async def test_a_rewrite_waits_for_a_person_where_that_is_wanted(
    forge: Forge, follow: Follow, upstream: Upstream
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.tag("v1")
    one = follow(forge.url("org/repo"))
    with_settings(one, force_push="ask")
    before = await one.succeed()
    repo.commit({"a": b"2"})
    forwards = await one.succeed()
    assert forwards != before and forwards == upstream(repo)
    repo.force_push({"a": b"other"})
    failure = await one.fail()
    assert (failure.kind, bool(failure.loss)) == ("rewritten", True) and "main" in failure.message, failure
    assert await one.kind.versions(one.held) == forwards
    assert (await one.fail()).loss == failure.loss, "asking again asks the same"
    repo.force_push({"a": b"yet another"})
    with_settings(one, failure.loss, force_push="ask")
    again = await one.fail()
    assert again.loss != failure.loss, "what was accepted is not what would be lost now"
    with_settings(one, again.loss, force_push="ask")
    assert await one.succeed() == upstream(repo)
    assert kept(one) == {"heads/main": forwards["refs/heads/main"]}
    repo.git("tag", "-f", "v1")
    assert (await one.fail()).kind == "rewritten", "a tag that moves is history rewritten"


async def test_an_accepted_loss_is_followed_and_no_other(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    for n in range(30):
        repo.commit({"a": b"%d" % n}, branch=f"many{n}")
    one = follow(forge.url("org/repo"))
    before = await one.succeed()
    for n in range(25):
        repo.delete_branch(f"many{n}")
    failure = await one.fail()
    assert failure.kind == "emptied" and failure.loss and "skep source accept" in failure.message
    repo.delete_branch("many25")
    with_settings(one, failure.loss)
    again = await one.fail()
    assert await one.kind.versions(one.held) == before
    with_settings(one, again.loss)
    assert await one.succeed() == upstream(repo)
    assert len(kept(one)) == 26, "pruned, and yet not lost"


async def test_an_emptied_upstream_that_is_meant(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    old = (await one.succeed())["refs/heads/main"]
    repo.delete_branch("main")
    failure = await one.fail()
    with_settings(one, failure.loss)
    assert await one.succeed() == {}
    assert kept(one) == {"heads/main": old}


async def test_a_kill_between_moving_and_keeping_loses_no_tip(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    old = (await one.succeed())["refs/heads/main"]
    repository.note(one.folder, {"refs/heads/main": old})
    new = repo.force_push({"a": b"other"})
    mirror = Repo(one.folder)
    mirror.git("fetch", "-q", str(repo.folder), "+refs/heads/*:refs/heads/*")
    assert mirror.refs() == {"refs/heads/main": new}
    await one.succeed()
    assert kept(one) == {"heads/main": old}
    (one.folder / "moving").write_bytes(b'{"refs/heads/ma')
    repo.commit({"a": b"2"})
    await one.succeed()


def test_old_tips_go_after_their_time_and_the_oldest_of_too_many() -> None:
    day = 86_400.0
    old, new = (next(iter(kept_names(["refs/heads/main"], at).values())) for at in (10 * day, 100 * day))
    assert (old, new) == (f"{KEPT}19700111T000000Z/heads/main", f"{KEPT}19700411T000000Z/heads/main")
    assert expired([old, new, "refs/heads/main"], 120 * day, 60 * day) == [old]
    assert expired([old, new], 120 * day, 1000 * day) == []
    many = [f"{KEPT}20200101T000000Z/heads/{n:05}" for n in range(MOST_KEPT + 3)]
    assert expired(many, 1.6e9, 1e9) == many[:3]


async def test_expired_tips_leave_the_disk(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    old = (await one.succeed())["refs/heads/main"]
    mirror = Repo(one.folder)
    mirror.git("update-ref", f"{KEPT}20010101T000000Z/heads/main", old)
    repo.force_push({"a": b"2"})
    keeping_follow = one.held
    with_settings(one, force_push="follow")
    await one.succeed()
    one.held = keeping_follow
    repo.branch("b")
    repo.commit({"a": b"3"})
    assert await one.succeed() == upstream(repo)
    assert kept(one) == {}
    assert await resolve(one.folder, old) is None
    one.fsck()


@given(st.dictionaries(st.text("abc/", min_size=1), st.text("0123456789abcdef", min_size=40, max_size=40)))
def test_a_note_is_read_as_it_was_written(tips: dict[str, str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        repository.note(Path(folder), tips)
        assert json.loads((Path(folder) / "moving").read_bytes()) == tips
