"""Each git blob is analysed once; what a worker knows already it tells again only where it is wanted."""

from pathlib import Path

import pytest

from skep.analysis.worker import analyse
from skep.indexing.build import Analyse, Analysed, Job, plan
from skep.sources.git.documents import Rules
from skep.storage.code_index.analysis_files import Library
from tests.support.forge import Forge, Repo


@pytest.fixture
def repo(forge: Forge) -> Repo:
    return forge.create("books", {"a.py": b"def a(): pass\n", "copy/a.py": b"def a(): pass\n", "b.bin": b"\0\1"})


def study(repo: Repo, tmp_path: Path, name: str, *, whole: bool = False) -> Analysed:
    out = tmp_path / name
    plan(Job("src_1", 1, str(repo.folder), None, (), Rules(1_000), str(out), 10_000), lambda done, total: None)
    return analyse(Analyse(str(out), str(tmp_path / "library"), whole=whole), lambda done, total: None)


def test_a_blob_is_analysed_once(repo: Repo, tmp_path: Path) -> None:
    first = study(repo, tmp_path, "one")
    assert (first.files, first.bytes) == (2, 14), "two paths are one blob; what is not text is known to be so"
    assert first.report is not None and first.report.total.files == 3
    repo.commit({"c.py": b"def c(): pass\n"})
    second = study(repo, tmp_path, "two")
    assert second.files == 1
    assert second.report is not None and second.report.functions == 3
    assert sum(book.blobs for book in second.books) == 3, "what is new in the index is told, known or not"


def test_what_ended_the_process_is_passed_over(repo: Repo, tmp_path: Path) -> None:
    blob = repo.git("rev-parse", "main:a.py").decode().strip()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "hand-None").write_text(f"{blob}\n")
    told = study(repo, tmp_path, "one")
    assert told.report is not None and (told.report.functions, told.report.total.lines) == (0, 2)
    assert len(Library(tmp_path / "library").open().of([blob]).at) == 0
    assert (tmp_path / "one" / "hand-None").read_text() == f"{blob}\n", "nothing else was in hand when it ended"


def test_lost_books_are_written_again(repo: Repo, tmp_path: Path) -> None:
    study(repo, tmp_path, "one")
    for path in (tmp_path / "library").iterdir():
        path.write_bytes(path.read_bytes()[:-8])
    assert study(repo, tmp_path, "two").files == 2
    assert sum(book.blobs for book in study(repo, tmp_path, "three", whole=True).books) == 2
