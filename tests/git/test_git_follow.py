"""A mirror follows its upstream through all that branches can do."""

from collections.abc import Callable
from pathlib import Path

from skep.sources.git.mirror import folder_of
from skep.sources.git.source_type import GitKind
from skep.sources.source_type import Moved, Same
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow

Upstream = Callable[[Repo], dict[str, str]]


async def test_first_fetch_brings_all_and_the_next_look_is_the_same(
    forge: Forge, follow: Follow, upstream: Upstream
) -> None:
    repo = forge.create("org/repo", {"a.py": b"print(1)\n", "docs/b.md": b"# b\n"})
    repo.tag("v1", annotated=True)
    one = follow(forge.url("org/repo"))
    assert await one.succeed() == upstream(repo)
    assert isinstance(await one.look(), Same)
    assert one.progress[-1].stage == "clone" and one.progress[-1].total == 100
    assert (one.folder / "url").read_text().strip() == forge.url("org/repo")
    one.fsck()


async def test_an_unchanged_source_costs_one_exchange_on_one_connection(forge: Forge, follow: Follow) -> None:
    forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    forge.requests.clear()
    for _ in range(3):
        assert isinstance(await one.look(), Same)
    assert [request.method for request in forge.requests] == ["POST"] * 3


async def test_a_small_mirror_is_few_files(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {f"{n}.txt": b"%d" % n for n in range(50)})
    for n in range(20):
        repo.branch(f"b{n}")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    assert sum(1 for path in one.folder.rglob("*") if path.is_file()) <= 6


async def test_commit_branch_tag_delete_force_push_and_head(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    steps: list[Callable[[], object]] = [
        lambda: repo.commit({"a": b"2"}),
        lambda: repo.branch("feature/x"),
        lambda: repo.tag("v1"),
        lambda: repo.delete_branch("feature/x"),
        lambda: repo.force_push({"a": b"other history"}),
        lambda: repo.branch("develop"),
        lambda: repo.set_head("develop"),
        lambda: repo.commit({"a": None, "b": b"3"}, branch="develop"),
    ]
    for step in steps:
        step()
        assert isinstance(await one.look(), Moved)
        assert await one.succeed() == upstream(repo)
        assert isinstance(await one.look(), Same)
    assert one.progress[-1].stage == "fetch"
    one.fsck()


async def test_a_branch_becomes_a_folder_of_branches_and_back(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.branch("topic")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.delete_branch("topic")
    repo.commit({"a": b"2"}, branch="topic/one")
    assert await one.succeed() == upstream(repo)
    repo.delete_branch("topic/one")
    repo.commit({"a": b"3"}, branch="topic")
    assert await one.succeed() == upstream(repo)
    one.fsck()


async def test_many_fetches_do_not_pile_up_packs(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"0"})
    one = follow(f"file://{repo.folder}")
    for n in range(25):
        repo.commit({"a": b"%d" % n})
        await one.succeed()
    assert await one.succeed() == upstream(repo)
    assert len(list((one.folder / "objects/pack").glob("*.pack"))) <= 21
    one.fsck()


async def test_an_empty_repository_is_current_and_empty(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/empty")
    one = follow(forge.url("org/empty"))
    assert await one.succeed() == {}
    assert isinstance(await one.look(), Same)
    repo.commit({"a": b"1"})
    assert await one.succeed() == upstream(repo)


async def test_head_that_names_no_branch_gets_a_sensible_one(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", branch="master")
    repo.commit({"a": b"1"}, branch="trunk")
    repo.commit({"a": b"2"}, branch="zeta")
    one = follow(forge.url("org/repo"))
    assert (await one.succeed())["HEAD"] == "refs/heads/trunk"
    assert (one.folder / "HEAD").read_text() == "ref: refs/heads/trunk\n"


async def test_detached_head_stands_for_the_branch_at_the_same_commit(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    commit = repo.commit({"a": b"2"}, branch="work")
    (repo.folder / "HEAD").write_text(commit + "\n")
    assert (await follow(forge.url("org/repo")).succeed())["HEAD"] == "refs/heads/work"


async def test_paths_and_file_urls(forge: Forge, follow: Follow, upstream: Upstream, tmp_path: Path) -> None:
    repo = Repo.init(tmp_path / "with space" / "r%41.git")
    repo.commit({"a": b"1"})
    one = follow(str(repo.folder))
    assert await one.succeed() == upstream(repo)
    assert isinstance(await one.look(), Same)
    repo.commit({"a": b"2"})
    assert await one.succeed() == upstream(repo)


async def test_servers_without_protocol_v2_are_remembered(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    forge.fault("", Fault(v0_only=True))
    one = follow(forge.url("org/repo"))
    assert await one.succeed() == upstream(repo)
    forge.requests.clear()
    assert isinstance(await one.look(), Same)
    assert [request.method for request in forge.requests] == ["GET"]


async def test_a_forge_that_wants_dot_git_gets_it(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    query = "/info/refs?service=git-upload-pack"
    forge.fault("org/repo", Fault(redirect=forge.url(f"org/repo.git{query}"), times=2))
    assert await follow(forge.url("org/repo")).succeed() == upstream(repo)
    assert forge.requests[-1].path == "/org/repo.git/git-upload-pack"


async def test_sha256_repositories(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    folder = forge.folder / "org/long.git"
    folder.mkdir(parents=True)
    repo = Repo(folder)
    repo.git("init", "--quiet", "--bare", "--object-format=sha256", "--initial-branch=main")
    repo.commit({"a": b"1"})
    one = follow(forge.url("org/long"))
    assert await one.succeed() == upstream(repo)
    assert len(repo.refs()["refs/heads/main"]) == 64


async def test_remove_leaves_nothing(forge: Forge, follow: Follow, kind: GitKind, data: Path) -> None:
    forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    await kind.remove(one.held)
    await kind.remove(one.held)
    assert await kind.versions(one.held) == {}
    assert not [path for path in (data / "mirrors").rglob("*") if path.is_file()]


def test_folders_spread_by_the_random_end_of_the_id() -> None:
    assert folder_of(Path("d"), "src_01ARZ3NDEKTSV4RRFFQ69G5FAV").as_posix() == (
        "d/mirrors/av/5f/src_01ARZ3NDEKTSV4RRFFQ69G5FAV.git"
    )
