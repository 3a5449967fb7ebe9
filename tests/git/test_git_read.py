"""Content for indexes and pages, straight from a mirror."""

from pathlib import Path

import pytest

from skep.base.errors import Damaged, NotFound
from skep.sources.git.browse import blob, ls, resolve
from skep.sources.git.documents import Rules, changed, contents, diff_tree, documents, list_tree, sizes
from skep.storage.code_index.model import Tip
from tests.support.forge import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.init(tmp_path / "repo.git")
    repo.commit(
        {"a.py": b"one\n", "dir/b.py": b"two\n", "dir/deep/c.py": b"three\n", "link": "a.py", "copy.py": b"one\n"}
    )
    return repo


def test_one_changed_file_is_one_document(repo: Repo) -> None:
    base = repo.refs()["refs/heads/main"]
    commit = repo.commit({"a.py": b"changed\n", "dir/b.py": None, "new.py": b"new\n", "copy.py": "a.py"})
    files, gone = changed(repo.folder, [Tip("main", base)], [Tip("main", commit)])
    found = documents(repo.folder, files, Rules(1_000))
    assert {document.path: document.content for document in found} == {b"a.py": b"changed\n", b"new.py": b"new\n"}
    assert sorted(gone) == [b"a.py", b"copy.py", b"dir/b.py"]
    assert len(files) == 2


def test_everything_at_first(repo: Repo) -> None:
    files, gone = changed(repo.folder, None, [Tip("main", repo.refs()["refs/heads/main"])])
    found = documents(repo.folder, files, Rules(4))
    assert {document.path: document.content for document in found} == {
        b"a.py": b"one\n",
        b"copy.py": b"one\n",
        b"dir/b.py": b"two\n",
        b"dir/deep/c.py": b"",
    }
    assert (gone, len(files)) == ([], 4)


def test_submodules_are_no_documents(repo: Repo) -> None:
    base = repo.refs()["refs/heads/main"]
    tree = repo.git("mktree", input=f"160000 commit {base}\tsub\n".encode()).decode().strip()
    commit = repo.git("commit-tree", "-m", "sub", tree).decode().strip()
    assert [(entry.kind, entry.path) for entry in list_tree(repo.folder, commit)] == [("commit", b"sub")]
    files, gone = changed(repo.folder, [Tip("main", base)], [Tip("main", commit)])
    found = documents(repo.folder, files, Rules(1_000))
    assert (list(found), len(gone), files) == ([], 5, [])


def test_missing_blobs_are_said_to_be_missing(repo: Repo) -> None:
    here, lost = repo.git("hash-object", "-w", "--stdin", input=b"x").decode().strip(), "1" * 40
    assert list(contents(repo.folder, [here, lost, here])) == [(here, b"x"), (lost, None), (here, b"x")]
    assert sizes(repo.folder, [here, lost]) == {here: 1}


def test_an_unknown_commit_is_damage_and_an_early_stop_is_not(repo: Repo) -> None:
    with pytest.raises(Damaged, match=r"repo\.git"):
        list(list_tree(repo.folder, "1" * 40))
    with pytest.raises(Damaged):
        diff_tree(repo.folder, "1" * 40, repo.refs()["refs/heads/main"])
    walk = list_tree(repo.folder, repo.refs()["refs/heads/main"])
    assert next(walk).path == b"a.py"
    del walk


async def test_pages_look_at_folders_and_files(repo: Repo) -> None:
    repo.tag("v1", annotated=True)
    commit = repo.refs()["refs/heads/main"]
    for rev in ("HEAD", "main", "refs/heads/main", "v1", commit, commit[:10]):
        assert await resolve(repo.folder, rev) == commit
    assert await resolve(repo.folder, "nothing") is None
    assert [(entry.kind, entry.path) for entry in await ls(repo.folder, commit)] == [
        ("tree", b"dir"),
        ("blob", b"a.py"),
        ("blob", b"copy.py"),
        ("blob", b"link"),
    ]
    assert [entry.path for entry in await ls(repo.folder, commit, "/dir/")] == [b"deep", b"b.py"]
    found = await blob(repo.folder, commit, "dir/b.py", 100)
    assert (found.content, found.size) == (b"two\n", 4)
    assert (await blob(repo.folder, commit, "dir/b.py", 3)).content is None


@pytest.mark.parametrize(
    "path", ["nothing", "dir", "..", "../repo.git/config", "a.py/x", "*", ":(glob)**", "a\0b", "-x"]
)
async def test_what_is_no_file_is_not_found(repo: Repo, path: str) -> None:
    commit = repo.refs()["refs/heads/main"]
    with pytest.raises(NotFound):
        await blob(repo.folder, commit, path, 100)
    if path != "dir":
        with pytest.raises(NotFound):
            await ls(repo.folder, commit, path)
    with pytest.raises(NotFound):
        await ls(repo.folder, "--help", path)
