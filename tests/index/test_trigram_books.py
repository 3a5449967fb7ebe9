"""The searcher keeps books beside its shards: through restarts, without those of files that are gone."""

from pathlib import Path

from skep.storage.code_index.analysis_files import Definition, Entry, name_number, write_book
from skep.storage.code_index.model import BookInfo
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.database import Database
from tests.index.conftest import Adopt, hash_of

APPLE, PEAR = b"def apple(): pass\n", b"def pear(): pass\n"


def blob(content: bytes) -> str:
    return f"{hash_of(content):040x}"


def book(folder: Path, name: str, *contents: bytes) -> BookInfo:
    folder.mkdir(exist_ok=True)
    return write_book(
        folder, name, [Entry(blob(one), [Definition(4, 5, 1, 1, name_number(one[4:9]))], b"") for one in contents], 1
    )


async def test_books_outlive_the_process(searcher: TrigramSearcher, adopt: Adopt, db: Database, tmp_path: Path) -> None:
    await adopt({b"a": APPLE})
    assert not searcher.annotated([blob(APPLE)])
    info = book(tmp_path / "built", "bok_1", APPLE)
    assert await searcher.annotate(info)
    assert await searcher.annotate(info)
    assert searcher.annotated([blob(APPLE)])
    assert not await searcher.annotate(BookInfo("bok_2", str(tmp_path / "nowhere"), 1))
    again = await open_trigram("file:", data=tmp_path, db=db)
    await again.start()
    assert again.annotated([blob(APPLE)])
    assert again._librarian.books.of([blob(APPLE)]).at.tolist() == [4]
    await again.close()


async def test_merging_forgets_what_is_gone(searcher: TrigramSearcher, adopt: Adopt, tmp_path: Path) -> None:
    await adopt({b"a": APPLE})
    for n in range(10):
        assert await searcher.annotate(book(tmp_path / "built", f"bok_{n}", APPLE, PEAR))
    while await searcher.merge_once():
        pass
    assert len(list(searcher._librarian.library.folder.iterdir())) == 1
    assert searcher.annotated([blob(APPLE)])
    assert not searcher.annotated([blob(PEAR)])
