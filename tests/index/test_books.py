import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import Damaged
from skep.storage.code_index.analysis_files import (
    Book,
    Books,
    Definition,
    Entry,
    Library,
    keys_of,
    merge,
    name_number,
    pick,
    write_book,
)
from skep.storage.code_index.model import BookInfo


def blob(n: int) -> str:
    return hashlib.sha1(str(n).encode()).hexdigest()


def entry(n: int, count: int) -> Entry:
    definitions = [Definition(10 * i, 3 + n % 5, i + 1, i % 12, name_number(b"name%d" % i)) for i in range(count)]
    return Entry(blob(n), definitions, f"facts {n}".encode())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 60), st.integers(0, 5), max_size=20), max_size=5), st.data())
def test_books_answer_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, shelves: list[dict[int, int]], data: st.DataObject
) -> None:
    library = Library(tmp_path_factory.mktemp("library"))
    known: dict[int, int] = {}
    for nth, given_ones in enumerate(shelves):
        shelf = {n: known.get(n, count) for n, count in given_ones.items()}  # a blob is what it is, wherever it is told
        write_book(library.folder, f"bok_{nth}", [entry(*item) for item in shelf.items()], 1)
        known |= shelf
    if len(shelves) > 1 and data.draw(st.booleans()):
        merge(library, library.open().books)
    books = library.open()
    asked = data.draw(st.lists(st.integers(0, 70), max_size=30))
    found = books.of([blob(n) for n in asked])
    expected = [
        (nth, *definition)
        for nth, n in enumerate(asked)
        for definition in entry(n, known.get(n, 0)).definitions
    ]  # fmt: skip
    assert list(zip(*(array.tolist() for array in found), strict=True)) == expected
    ids = np.array([blob(n) for n in asked], np.bytes_)
    assert books.has(ids).tolist() == [n in known for n in asked]
    for i in range(6):
        defining = {blob(n).encode() for n, count in known.items() if count > i}
        assert set(books.defining([name_number(b"NAME%d" % i)]).tolist()) == defining
    for book, which, places in books.find(ids):
        for n, place in zip(which.tolist(), places.tolist(), strict=True):
            assert book.facts(place) == f"facts {asked[n]}".encode()


def test_a_merge_leaves_out_what_no_index_has(tmp_path: Path) -> None:
    library = Library(tmp_path)
    for nth in range(9):
        write_book(tmp_path, f"bok_{nth}", [entry(nth, 2), entry(100 + nth, 1)], 1)
    chosen = pick(library.open().books)
    assert len(chosen) == 9
    live = np.sort(keys_of(np.array([blob(n) for n in range(5)], np.bytes_)))
    merge(library, chosen, live)
    books = library.open()
    assert len(books.books) == 1
    ids = np.array([blob(n) for n in (0, 4, 5, 100)], np.bytes_)
    assert books.has(ids).tolist() == [True, True, False, False]


@pytest.mark.parametrize("where", [0, 5, 40, -1])
def test_a_damaged_book_is_noticed(tmp_path: Path, where: int) -> None:
    info = write_book(tmp_path / "", "bok_1", [entry(1, 3)], 1)
    content = bytearray(Path(info.path).read_bytes())
    content[where] ^= 0x55
    Path(info.path).write_bytes(content)
    with pytest.raises(Damaged):
        Book(Path(info.path)).verify()
    (tmp_path / "other").mkdir()
    with pytest.raises(Damaged):
        Library(tmp_path / "other").take_in(info)
    assert not list((tmp_path / "other").glob("*.book"))


def test_half_a_book_is_removed_and_another_version_too(tmp_path: Path) -> None:
    whole = write_book(tmp_path, "bok_1", [entry(1, 3)], 1)
    (tmp_path / "bok_2.book").write_bytes(Path(whole.path).read_bytes()[:-8])
    (tmp_path / "bok_3.book.new").write_bytes(b"")
    write_book(tmp_path, "bok_4", [entry(4, 3)], 2)
    library = Library(tmp_path, version=1)
    library.sweep()
    assert [book.id for book in library.open().books] == ["bok_1"]
    assert [path.name for path in tmp_path.iterdir()] == ["bok_1.book"]


def test_taking_in_twice_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    info = write_book(tmp_path / "a", "bok_1", [entry(1, 3)], 1)
    library = Library(tmp_path / "b")
    for _ in range(2):
        library.take_in(info)
    Path(info.path).unlink()
    assert len(library.open().of([blob(1)]).at) == 3
    with pytest.raises(OSError):
        library.take_in(BookInfo("bok_2", str(tmp_path / "nowhere"), 1))


def test_an_empty_library_knows_nothing() -> None:
    assert len(Books().of([blob(1)]).at) == 0
    assert Books().has(np.array([blob(1)], np.bytes_)).tolist() == [False]
