"""Several branches in one index, paths that are left out, and what an index should hold."""

from pathlib import Path

import pytest

from skep.base.errors import Damaged
from skep.indexing.build import Finished, Job, plan, tips_of
from skep.sources.git.documents import Ignored, Rules, expected
from skep.storage.code_index.model import Delta, Document, Tip, digest
from skep.storage.code_index.trigram.shard import Shard
from tests.support.forge import Forge, Repo


@pytest.fixture
def repo(forge: Forge) -> Repo:
    repo = forge.create("tips", {"same.txt": b"same\n", "moved.txt": b"old\n"})
    repo.git("branch", "release/1")
    repo.git("tag", "-a", "-m", "first", "v1", "main")
    repo.commit({"moved.txt": b"new\n", "added.txt": b"added\n"})
    return repo


def indexed(repo: Repo, out: Path, base: Delta | None = None, *patterns: str, ignore: tuple[str, ...] = ()) -> Delta:
    job = Job(
        "src_1", 1, str(repo.folder), base.tips if base else None, patterns, Rules(1_000, ignore), str(out), 10_000
    )
    made = plan(job, lambda done, total: None)
    assert isinstance(made, Finished) and made.delta is not None
    return made.delta


def documents(delta: Delta) -> set[tuple[str, bytes, int]]:
    found: list[Document] = []
    for info in delta.shards:
        shard = Shard(Path(info.folder))
        found += [shard.document(n) for n in range(shard.documents)]
    return {(document.path.decode(), document.content, document.branches) for document in found}


def test_the_default_branch_comes_first_and_tags_are_named_by_what_they_name(repo: Repo) -> None:
    first = repo.git("rev-parse", "v1^{commit}").decode().strip()
    newest = repo.refs()["refs/heads/main"]
    assert tips_of(repo.folder, ()) == (Tip("main", newest),)
    assert tips_of(repo.folder, ("release/*", "v*", "main")) == (
        Tip("main", newest),
        Tip("release/1", first),
        Tip("v1", first),
    )
    assert tips_of(repo.folder, ("nothing/*",)) == (Tip("main", newest),)


def test_a_file_that_is_the_same_everywhere_is_one_document(repo: Repo, tmp_path: Path) -> None:
    delta = indexed(repo, tmp_path / "a", None, "release/*")
    assert documents(delta) == {
        ("same.txt", b"same\n", 0b11),
        ("moved.txt", b"new\n", 0b01),
        ("moved.txt", b"old\n", 0b10),
        ("added.txt", b"added\n", 0b01),
    }


def test_a_move_on_one_branch_makes_all_documents_of_its_paths_anew(repo: Repo, tmp_path: Path) -> None:
    first = indexed(repo, tmp_path / "a", None, "release/*")
    repo.commit({"moved.txt": b"old\n", "same.txt": None})
    second = indexed(repo, tmp_path / "b", first, "release/*")
    assert second.base == first.tips
    assert sorted(second.gone) == [b"moved.txt", b"same.txt"]
    assert documents(second) == {("moved.txt", b"old\n", 0b11), ("same.txt", b"same\n", 0b10)}


@pytest.mark.parametrize("patterns", [(), ("release/*", "v1")])
def test_other_branches_than_before_are_an_index_from_nothing(
    repo: Repo, tmp_path: Path, patterns: tuple[str, ...]
) -> None:
    first = indexed(repo, tmp_path / "a", None, "release/*")
    second = indexed(repo, tmp_path / "b", first, *patterns)
    assert second.base is None
    assert ("same.txt", b"same\n", (1 << len(second.tips)) - 1) in documents(second)


def test_an_ignore_file_is_obeyed_and_changing_it_starts_anew(repo: Repo, tmp_path: Path) -> None:
    first = indexed(repo, tmp_path / "a", ignore=("same.*",))
    assert {path for path, _, _ in documents(first)} == {"moved.txt", "added.txt"}
    repo.commit({".skepignore": b"# not this\n/added.txt\n"})
    second = indexed(repo, tmp_path / "b", first, ignore=("same.*",))
    assert second.base is None
    assert {path for path, _, _ in documents(second)} == {"moved.txt", ".skepignore"}


@pytest.mark.parametrize(
    ("lines", "out", "kept"),
    [
        (["*.min.js"], ["a.min.js", "deep/b.min.js"], ["a.js"]),
        (["build/"], ["build/x", "a/build/y/z"], ["build", "rebuild/x"]),
        (["/docs"], ["docs/a", "docs"], ["src/docs/a"]),
        (["a/*.c"], ["a/x.c"], ["a/b/x.c", "b/a/x.c"]),
        (["vendor/", "!vendor/ours/**"], ["vendor/x"], ["vendor/ours/x"]),
        (["", "# comment"], [], ["# comment"]),
    ],
)
def test_patterns_mean_what_they_mean_to_git(lines: list[str], out: list[str], kept: list[str]) -> None:
    ignored = Ignored(lines)
    assert [path for path in out + kept if path.encode() in ignored] == out


def test_ignore_lines_that_make_no_sense_ignore_nothing(repo: Repo, tmp_path: Path) -> None:
    repo.commit({".skepignore": b"[z-a]\n" + b"x\n" * 5_000})
    assert ("same.txt", b"same\n", 1) in documents(indexed(repo, tmp_path / "a"))


def test_the_digest_is_that_of_what_was_indexed(repo: Repo, tmp_path: Path) -> None:
    delta = indexed(repo, tmp_path / "a", None, "release/*", ignore=("added.txt",))
    held: list[tuple[bytes, str, int]] = []
    for info in delta.shards:
        shard = Shard(Path(info.folder))
        held += [(shard.path(n), shard.blob(n), int(shard.branches[n])) for n in range(shard.documents)]
    assert expected(repo.folder, delta.tips, ("added.txt",)) == digest(reversed(held))
    assert expected(repo.folder, delta.tips, ()) != digest(held)


def test_a_mirror_that_is_gone_is_not_an_empty_one(repo: Repo, tmp_path: Path) -> None:
    repo.folder.rename(repo.folder.with_suffix(".aside"))
    with pytest.raises(Damaged, match="is gone"):
        indexed(repo, tmp_path / "a")
