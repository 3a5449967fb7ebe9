"""Mirrors stay small, sound and within their bounds; what is damaged is made anew, what is huge comes in steps."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.mirrors.replication import due
from skep.sources.git import mirror as bringing
from skep.sources.git.repository import KEPT, read_all
from skep.sources.git.source_type import GitKind
from skep.sources.source_type import Same
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]


def inodes(folder: Path) -> int:
    return 1 + sum(1 for _ in folder.rglob("*"))


def rot(folder: Path, seed: int = 1) -> None:
    """Turn one byte in the middle of the largest pack."""
    pack = max((folder / "objects/pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    at = random.Random(seed).randrange(40, len(data) - 40)
    data[at] ^= 0xFF
    pack.write_bytes(data)


async def test_a_small_mirror_is_nine_inodes(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {f"{n}.txt": b"%d" % n for n in range(50)})
    for n in range(20):
        repo.branch(f"topic/b{n}")
    repo.tag("v1")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    assert inodes(one.folder) == 9, sorted(one.folder.rglob("*"))
    one.fsck()
    repo.commit({"a": b"2"}, branch="topic/b1")
    assert await one.succeed() == upstream(repo)
    assert inodes(one.folder) == 11, "a pack and its index more"


async def test_many_fetches_become_few_packs_with_one_index(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"0"})
    one = follow(f"file://{repo.folder}")
    for n in range(22):
        repo.commit({"a": b"%d" % n})
        await one.succeed()
    assert await one.succeed() == upstream(repo)
    assert len(list((one.folder / "objects/pack").glob("*.pack"))) < 5
    assert (one.folder / "objects/pack/multi-pack-index").exists()
    assert (one.folder / "objects/info/commit-graphs").is_dir()
    one.fsck()


async def test_a_damaged_mirror_is_made_anew_and_keeps_its_old_tips(
    forge: Forge, follow: Follow, kind: GitKind, upstream: Upstream
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.force_push({"big": random.Random(1).randbytes(50_000)})
    await one.succeed()
    assert isinstance(await one.look(), Same) and not kind.heavy(one.held)
    assert await kind.check(one.held) is None
    rot(one.folder)
    failure = await kind.check(one.held)
    assert failure is not None and failure.kind == "corrupt" and "damaged" in failure.message
    assert kind.heavy(one.held)
    forge.fault("", Fault(status=503))
    assert (await one.fail()).kind == "network"
    assert one.folder.exists(), "what can be read stays until there is something better"
    forge.fault("", None)
    assert await one.succeed() == upstream(repo)
    assert await kind.check(one.held) is None
    assert [name for name in read_all(one.folder) if name.startswith(KEPT)]
    assert isinstance(await one.look(), Same) and not kind.heavy(one.held)
    assert [path.name for path in one.folder.parent.iterdir()] == [one.folder.name]


async def test_damage_that_a_fetch_meets_is_repaired_by_the_next(
    forge: Forge, follow: Follow, upstream: Upstream
) -> None:
    content = random.Random(1).randbytes(50_000)
    repo = forge.create("org/repo", {"big": content})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    rot(one.folder)
    repo.commit({"big": content + b"and a little more"})  # comes as a difference from what is damaged
    failure = await one.fail()
    assert failure.kind == "corrupt", failure
    assert await one.succeed() == upstream(repo)
    one.fsck()


async def test_a_damaged_mirror_does_not_follow_an_emptied_upstream(
    forge: Forge, follow: Follow, kind: GitKind
) -> None:
    repo = forge.create("org/repo", {"big": random.Random(1).randbytes(50_000)})
    one = follow(forge.url("org/repo"))
    before = await one.succeed()
    rot(one.folder)
    assert await kind.check(one.held) is not None
    repo.delete_branch("main")
    assert (await one.fail()).kind == "emptied"
    assert await kind.versions(one.held) == before


async def test_old_sins_are_no_damage(forge: Forge, follow: Follow, kind: GitKind) -> None:
    repo = forge.create("org/old", {"a": b"1"})
    tree = repo.git("rev-parse", "main^{tree}").strip().decode()
    raw = f"tree {tree}\nauthor A <a@b> 1 +1\ncommitter A <a@b> 1 -99999999\n\nold\n".encode()
    commit = repo.git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", input=raw).strip().decode()
    repo.git("update-ref", "refs/heads/main", commit)
    one = follow(forge.url("org/old"))
    await one.succeed()
    assert await kind.check(one.held) is None


async def test_huge_repositories_come_newest_first(forge: Forge, data: Path, upstream: Upstream) -> None:
    settings = Settings(allow_networks=("127.0.0.0/8",), huge_over=200_000)
    kind = GitKind(settings, data, SystemClock(0))
    repo = forge.create("org/huge")
    dice = random.Random(1)
    for n in range(6):
        repo.commit({"big": dice.randbytes(100_000)})
        repo.tag(f"v{n}")
    one = Follower(kind, forge.url("org/huge"))
    assert set(await one.succeed()) == {"HEAD", "refs/heads/main"}
    assert kind.heavy(one.held)
    mirror = Repo(one.folder)
    assert mirror.git("rev-list", "--count", "main").strip() == b"1"
    assert mirror.git("show", "main:big") == repo.git("show", "main:big")
    assert await one.succeed() == upstream(repo)
    assert not kind.heavy(one.held) and not (one.folder / "shallow").exists()
    assert mirror.git("rev-list", "--count", "main").strip() == b"6"
    assert isinstance(await one.look(), Same)
    one.fsck()
    await kind.close()


async def test_a_huge_repository_of_one_branch_is_deepened_too(forge: Forge, data: Path, upstream: Upstream) -> None:
    settings = Settings(allow_networks=("127.0.0.0/8",), huge_over=150_000)
    kind = GitKind(settings, data, SystemClock(0))
    repo = forge.create("org/huge")
    dice = random.Random(1)
    for _ in range(3):
        repo.commit({"big": dice.randbytes(100_000)})
    one = Follower(kind, forge.url("org/huge"))
    assert await one.succeed() == upstream(repo)
    assert kind.heavy(one.held)
    assert await one.succeed() == upstream(repo)
    assert not kind.heavy(one.held)
    assert Repo(one.folder).git("rev-list", "--count", "main").strip() == b"3"
    await kind.close()


async def test_history_comes_in_steps(
    forge: Forge, data: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "_SHORTEST_STEP", 2)
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",)), data, SystemClock(0))
    repo = forge.create("org/huge")
    for n in range(20):
        repo.commit({f"{n}": b"x"})
        repo.tag(f"v{n}")
    one = Follower(kind, forge.url("org/huge"))
    one.held = msgspec.structs.replace(one.held, size=2_000_000_000)
    assert kind.heavy(one.held)  # as its forge says: before the first byte
    depths = []
    mirror = Repo(one.folder)
    while kind.heavy(one.held):
        await one.succeed()
        depths.append(int(mirror.git("rev-list", "--count", "main")))
        if len(depths) == 2:
            repo.commit({"later": b"x"})  # upstream moves on meanwhile, and is followed
    assert depths == [1, 3, 7, 14, 21]
    assert await one.succeed() == upstream(repo)
    assert isinstance(await one.look(), Same)
    one.fsck()
    await kind.close()


async def test_all_mirrors_together_have_a_bound(forge: Forge, data: Path) -> None:
    for n in range(3):
        forge.create(f"org/r{n}", {"big": random.Random(n).randbytes(100_000)})
    settings = Settings(allow_networks=("127.0.0.0/8",), max_mirrors=250_000)
    kind = GitKind(settings, data, SystemClock(0))
    first, second, third = (Follower(kind, forge.url(f"org/r{n}")) for n in range(3))
    await first.succeed()
    await second.succeed()
    failure = await third.fail()
    assert failure.kind == "disk" and "max_mirrors" in failure.message
    await kind.close()
    kind = GitKind(settings, data, SystemClock(0))
    again = Follower(kind, third.held.url)
    assert (await again.fail()).kind == "disk", "counted anew after a start"
    await kind.remove(first.held)
    await again.succeed()
    small = GitKind(Settings(allow_networks=("127.0.0.0/8",), max_mirrors=1_000), data, SystemClock(0))
    failure = await Follower(small, first.held.url).fail()
    assert failure.kind == "disk" and "permits 1,000" in failure.message
    await small.close()
    await kind.close()


@pytest.mark.parametrize("hours", [1, 5, 24, 24 * 7, 24 * 30])
def test_each_mirror_has_its_turn_once_in_a_period(hours: int) -> None:
    sources = [f"src_{n}" for n in range(500)]
    week, at, seen = 7 * 86_400.0, 1e9, []
    until = at + week
    while at < until:
        found = due(sources, week, at, min(until, at + hours * 3_600.0))
        seen += found
        at += hours * 3_600.0
    assert sorted(seen) == sorted(sources)
