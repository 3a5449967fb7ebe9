"""What others see of Skep is what was recorded; and no single change of the recorded data goes unnoticed."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.renames import Rename, read_table

from . import store
from .recording import SURFACES, record

#: the table of intended renames, once there is one


@pytest.fixture(scope="module")
def table() -> list[Rename]:
    return read_table()


@pytest.fixture(scope="module")
def now(table: list[Rename]) -> dict[str, str]:
    """Every surface of the tree as it is."""
    return record(SURFACES, table)


@pytest.mark.parametrize("surface", SURFACES)
def test_surface_compared_with_its_record_is_the_same(surface: str, now: dict[str, str], table: list[Rename]) -> None:
    found = store.difference(surface, now[surface], table)
    assert not found, "\n".join(["`scripts/golden record` writes it again, if this was intended:", *found])


def test_folder_of_records_has_a_file_for_each_surface_and_no_other() -> None:
    assert store.strangers(SURFACES) == []
    assert [one for one in SURFACES if not store.path_of(one).exists()] == []


def _changed_value(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines))
    place = dice.choice([n for n, letter in enumerate(lines[at]) if letter.isalnum()])
    other = "x" if lines[at][place] != "x" else "y"
    return [*lines[:at], lines[at][:place] + other + lines[at][place + 1 :], *lines[at + 1 :]]


def _deleted_line(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines))
    return [*lines[:at], *lines[at + 1 :]]


def _added_line(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines))
    return [*lines[:at], lines[at] + " more", *lines[at:]]


def _repeated_line(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines))
    return [*lines[:at], lines[at], *lines[at:]]


def _swapped_names(lines: list[str], dice: random.Random) -> list[str]:
    """Two neighbours have each other's value."""
    pairs = [n for n in range(len(lines) - 1) if lines[n].rpartition(" = ")[2] != lines[n + 1].rpartition(" = ")[2]]
    at = dice.choice(pairs)
    (one, _, first), (two, _, second) = lines[at].rpartition(" = "), lines[at + 1].rpartition(" = ")
    return [*lines[:at], f"{one} = {second}", f"{two} = {first}", *lines[at + 2 :]]


def _swapped_lines(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines) - 1)
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


CORRUPTIONS: tuple[Callable[[list[str], random.Random], list[str]], ...] = (
    *(_changed_value, _deleted_line, _added_line, _repeated_line, _swapped_names, _swapped_lines),
)


@pytest.fixture(params=["without renames", "with renames"])
def renames(request: pytest.FixtureRequest) -> Iterator[list[Rename]]:
    """A table that changes nothing: the comparison goes the other way, and has to notice the same."""
    yield [] if request.param == "without renames" else [Rename("verb", "no_such_name", "other")]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda one: one.__name__.strip("_"))
@pytest.mark.parametrize("surface", SURFACES)
def test_record_corrupted_in_one_place_is_noticed(
    surface: str, corrupt: Callable[..., list[str]], renames: list[Rename], tmp_path: Path
) -> None:
    text = store.path_of(surface).read_text()
    store.write({surface: text}, tmp_path)
    assert store.difference(surface, text, renames, tmp_path) == []
    dice = random.Random(f"{surface} {corrupt.__name__}")
    for _ in range(5):
        store.write({surface: "".join(f"{one}\n" for one in corrupt(text.splitlines(), dice))}, tmp_path)
        assert store.difference(surface, text, renames, tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\xff\n", b"\n"], ids=["empty", "not text", "empty line"])
def test_record_that_is_cut_or_not_text_is_noticed(damage: bytes, tmp_path: Path) -> None:
    text = "a = 1\nb = 2\n"
    for body in (damage, text.encode() + damage if damage else b"a = 1\n", text.replace("\n", "\r\n").encode()):
        store.path_of("metrics", tmp_path).write_bytes(body)
        assert store.difference("metrics", text, [], tmp_path)
        assert store.difference("metrics", text, [Rename("*", "no_such_name", "other")], tmp_path)


def test_record_that_is_missing_or_unknown_is_noticed(tmp_path: Path) -> None:
    assert store.difference("metrics", "a = 1\n", [], tmp_path)
    (tmp_path / "other.txt").write_text("")
    assert store.strangers(SURFACES, tmp_path) == ["other.txt"]
