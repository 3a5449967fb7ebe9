"""Every operation, asked by every role for a public and a private object, answers as tests/golden/access.tsv says."""

import random

import pytest

from tests.access.fixtures import FIXTURES
from tests.access.table import FILE, BadFixture, _need_success, checked, computed, differences, recorded


def test_access_of_every_operation_is_as_recorded() -> None:
    found = differences(recorded(), computed())
    assert not found, "\n".join(
        ["the answers differ from tests/golden/access.tsv", *found, "if it is meant: scripts/access-table record"]
    )


@pytest.mark.parametrize(
    ("plant", "only", "shown"),
    [
        ("need", "/api/v1/tokens", ["+GET /api/v1/tokens\tnone\t-\t200", "+POST /api/v1/tokens\tread\t-\t201"]),
        ("sees", "/api/v1/sources", ["+GET /api/v1/sources/{id}\tread\tprivate\t200\tprivate-commit private-source"]),
    ],
)
def test_access_table_of_a_server_with_a_planted_bug_differs(plant: str, only: str, shown: list[str]) -> None:
    found = differences(recorded(["default"], only), computed(["default"], plant, only))
    for line in shown:
        assert any(one.startswith(line) for one in found), "\n".join([line, "is not in", *found])


@pytest.mark.parametrize("seed", range(50))
def test_access_table_with_one_changed_cell_differs_in_that_cell(seed: int) -> None:
    dice = random.Random(seed)
    whole = FILE.read_text()
    lines = whole.splitlines()
    at = dice.randrange(1, len(lines))
    cells = lines[at].split("\t")
    what = dice.choice(("status", "ids", "delete", "add"))
    if what == "status":
        column = dice.choice((3, 5))
        cells[column] = dice.choice(
            [status for status in ("200", "204", "401", "403", "404") if status != cells[column]]
        )
    elif what == "ids":
        column = dice.choice((4, 6))
        cells[column] = f"{cells[column]} private-source" if "private-source" not in cells[column] else "-"
    changed = [] if what == "delete" else ["\t".join(cells)]
    if what == "add":
        changed = [lines[at], "\t".join([f"{cells[0]}/new", *cells[1:]])]
    found = differences(whole, "\n".join([*lines[:at], *changed, *lines[at + 1 :]]) + "\n")[2:]
    assert found, (what, lines[at])
    assert all(one[1:].startswith(lines[at].split("\t")[0]) for one in found), found
    assert len(found) == (1 if what in ("delete", "add") else 2), found


def test_access_table_with_a_new_operation_without_request_is_refused() -> None:
    with pytest.raises(BadFixture, match="GET /brand-new"):
        checked([*FIXTURES, "GET /brand-new"])


def test_access_table_without_success_for_an_admin_is_refused() -> None:
    cells = {("GET /x", "admin", "-"): ("404", "-"), ("GET /x", "read", "-"): ("200", "-")}
    with pytest.raises(BadFixture, match="GET /x"):
        _need_success(["GET /x"], cells)
