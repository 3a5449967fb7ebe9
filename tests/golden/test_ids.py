"""No test gets lost: each id that was recorded is collected, or the table says what became of it."""

from pathlib import Path

import pytest

from .ids import ROOT, IdsError, Row, missing, plain, read_record, read_table, text_of


def test_every_recorded_test_is_collected_or_explained(request: pytest.FixtureRequest) -> None:
    """In a run of everything all of them; in a run of some files, those of these files."""
    config = request.config
    given = [Path(one.partition("::")[0]) for one in config.args]
    if (
        config.option.keyword
        or config.option.markexpr
        or config.option.deselect
        or any("::" in one for one in config.args)
    ):
        pytest.skip("some tests were left out of this run by its options")
    now = {plain(one.nodeid) for one in request.session.items}
    recorded, table = read_record(), read_table()
    if not all((ROOT / one).resolve() in (ROOT, ROOT / "tests") for one in given):
        files = {one.partition("::")[0] for one in now}
        recorded = [one for one in recorded if one.partition("::")[0] in files]
        table = [row for row in table if any(row.fits(one) for one in recorded)]
    assert list(missing(recorded, table, now)) == []


def lost(recorded: list[str], now: set[str], *rows: tuple[str, str]) -> list[str]:
    return list(missing(recorded, [Row(*row) for row in rows], now))


def test_test_that_is_lost_is_reported() -> None:
    assert lost(["tests/a.py::x", "tests/a.py::y"], {"tests/a.py::x", "tests/new.py::z"}) == [
        "tests/a.py::y: is lost, and no row of tests.tsv says why"
    ]


def test_test_with_a_row_of_its_own_is_looked_for_under_its_new_id() -> None:
    row = ("tests/a.py::x", "tests/b.py::y")
    assert lost(["tests/a.py::x"], {"tests/b.py::y"}, row) == []
    assert lost(["tests/a.py::x"], {"tests/b.py::x"}, row) == [
        "tests/a.py::x: should be tests/b.py::y, which does not exist"
    ]


def test_tests_of_a_moved_file_keep_the_rest_of_their_ids() -> None:
    row = ("tests/a.py::*", "tests/b.py::*")
    assert lost(["tests/a.py::x[1]", "tests/a.py::y"], {"tests/b.py::x[1]", "tests/b.py::y"}, row) == []
    assert lost(["tests/a.py::x[1]", "tests/a.py::y"], {"tests/b.py::x[1]"}, row) == [
        "tests/a.py::y: should be tests/b.py::y, which does not exist"
    ]


def test_longest_row_decides_and_a_reason_is_enough() -> None:
    rows = [("tests/a/*", "tests/b/*"), ("tests/a/c.py::*", "removed: it tested what is deleted")]
    assert lost(["tests/a/c.py::x", "tests/a/d.py::x"], {"tests/b/d.py::x"}, *rows) == []


def test_row_about_no_recorded_test_is_reported() -> None:
    assert lost(["tests/a.py::x"], {"tests/a.py::x"}, ("tests/z.py::*", "tests/b.py::*")) == [
        "tests/z.py::*: tests.tsv has a row for it, and no recorded test begins so"
    ]


@pytest.mark.parametrize(
    "row", ["tests/a.py::x", "tests/a.py::x\t", "tests/a.py::x\tremoved: ", "a\tnonsense", "a\ttests/*"]
)
def test_table_with_a_wrong_row_is_refused_with_its_line(row: str, tmp_path: Path) -> None:
    path = tmp_path / "tests.tsv"
    path.write_text(f"old\tnew\n{row}\n")
    with pytest.raises(IdsError, match=r"tests\.tsv:2: "):
        read_table(path)


def test_record_that_lost_a_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tests.txt"
    text = text_of(["tests/a.py::x", "tests/a.py::y", "tests/a.py::z"])
    path.write_text(text)
    assert read_record(path) == ["tests/a.py::x", "tests/a.py::y", "tests/a.py::z"]
    head, *lines = text.splitlines(keepends=True)
    changes = [lines[1:], [*lines, "tests/b.py::x\n"], lines[::-1], [one.replace("y", "w") for one in lines]]
    for changed in changes:
        path.write_text(head + "".join(changed))
        with pytest.raises(IdsError, match="changed by hand"):
            read_record(path)


def test_id_with_an_address_or_the_checkout_in_it_is_recorded_without() -> None:
    assert plain(f"tests/a.py::x[<f at 0x7f00aa>-{ROOT}/a]") == "tests/a.py::x[<f at 0x>-ROOT/a]"
