"""The table of renames translates what was recorded: whole words, keys and paths, of one surface."""

from pathlib import Path

import pytest

from tests.renames import Rename, RenameError, read_table

from . import store
from .recording import SURFACES
from .renames import translate


def once(surface: str, text: str, *rows: tuple[str, str, str]) -> str:
    (found,) = translate(surface, [text], [Rename(*row) for row in rows])
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("setting > grace > default = 600.0", "setting > worker_grace_period > default = 600.0"),
        (
            "setting > grace > variable = SKEP_GRACE",
            "setting > worker_grace_period > variable = SKEP_WORKER_GRACE_PERIOD",
        ),
        ("setting > grace > option = --grace", "setting > worker_grace_period > option = --worker-grace-period"),
        ("setting > graceful > option = --graceful", "setting > graceful > option = --graceful"),
        ("setting > grace_x > option = --grace-x", "setting > grace_x > option = --grace-x"),
        ('x > about = "a word of grace for all"', 'x > about = "a word of grace for all"'),
        ('x > about = "grace"', 'x > about = "worker_grace_period"'),
    ],
)
def test_setting_renamed_is_changed_in_each_of_its_spellings(text: str, expected: str) -> None:
    assert once("settings", text, ("setting", "grace", "worker_grace_period")) == expected


def test_name_that_is_no_prose_is_changed_inside_text() -> None:
    text = 'file > unknown = "look_timeout: wants number, see look_timeouts"'
    expected = 'file > unknown = "poll_timeout: wants number, see look_timeouts"'
    assert once("settings", text, ("setting", "look_timeout", "poll_timeout")) == expected


def test_row_of_another_surface_changes_nothing() -> None:
    text = "sqlite > skep.db > holding > column > member = TEXT"
    assert once("rpc", text, ("table", "holding", "assignment")) == text
    assert once("schema", text, ("table", "holding", "assignment")) == text.replace("holding", "assignment")
    assert once("schema", text, ("*", "holding", "assignment")) == text.replace("holding", "assignment")
    assert once("schema", text, ("schema", "holding", "assignment")) == text.replace("holding", "assignment")


def test_path_is_changed_only_in_its_own_place() -> None:
    rows = ("payloads", "skep.changes > at", "skep.changes > time")
    assert once("payloads", "skep.changes > at = 1", rows) == "skep.changes > time = 1"
    assert once("payloads", "skep.changes > attempt = 1", rows) == "skep.changes > attempt = 1"
    assert once("payloads", "skep.indexed > at = 1", rows) == "skep.indexed > at = 1"
    assert (
        once("rpc", "Beat > field > at = float", ("rpc", "field > at", "field > time")) == "Beat > field > time = float"
    )


def test_text_with_spaces_is_changed_inside_text() -> None:
    text = 'GET / > text of th = "Next look"'
    assert once("pages", text, ("label", "Next look", "Next poll")) == 'GET / > text of th = "Next poll"'


def test_names_that_are_exchanged_are_changed_once_each() -> None:
    rows = [("rpc", "Hold", "Keep"), ("rpc", "Keep", "Hold")]
    assert once("rpc", "Hold > field > body = Keep", *rows) == "Keep > field > body = Hold"


def test_longest_row_that_fits_is_taken() -> None:
    rows = [("route", "/lists", "/source-lists"), ("route", "/lists/{id}/confirm", "/source-lists/{id}/approve")]
    assert (
        once("openapi", "POST /lists/{id}/confirm > tags = []", *rows) == "POST /source-lists/{id}/approve > tags = []"
    )
    assert once("openapi", "GET /lists > tags = []", *rows) == "GET /source-lists > tags = []"


def test_translated_record_is_sorted_again_and_compared(tmp_path: Path) -> None:
    store.write({"schema": "a > holding = TEXT\na > member = TEXT\n"}, tmp_path)
    rows = [Rename("table", "holding", "zone")]
    assert store.difference("schema", "a > member = TEXT\na > zone = TEXT\n", rows, tmp_path) == []
    left = store.difference("schema", "a > member = BLOB\na > zone = TEXT\n", rows, tmp_path)
    assert [one for one in left if one[0] in "+-" and one[1] == "a"] == ["-a > member = TEXT", "+a > member = BLOB"]


def test_rename_that_was_not_done_is_noticed(tmp_path: Path) -> None:
    store.write({"schema": "a > holding = TEXT\n"}, tmp_path)
    assert store.difference("schema", "a > holding = TEXT\n", [Rename("table", "holding", "zone")], tmp_path)


def test_table_is_read_with_comments_and_several_surfaces(tmp_path: Path) -> None:
    path = tmp_path / "renames.tsv"
    path.write_text("surface\told\tnew\n# a comment\n\nrpc, client\tHold\tAssign\nfield\tat\ttime\t^/api/v1/log\n")
    assert read_table(path) == [
        Rename("rpc", "Hold", "Assign"),
        Rename("client", "Hold", "Assign"),
        Rename("field", "at", "time", "^/api/v1/log"),
    ]


def test_row_of_one_path_does_not_translate_golden_data() -> None:
    assert translate("rpc", ["Change > at = 1"], [Rename("field", "at", "time", "^/api/v1/log")]) == ["Change > at = 1"]


def test_every_surface_of_the_golden_data_may_be_named_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "renames.tsv"
    path.write_text(f"{','.join(SURFACES)}\told\tnew\n")
    assert {row.surface for row in read_table(path)} == set(SURFACES)


@pytest.mark.parametrize("row", ["rpc\tHold", "rpc\tHold\t", "nonsense\tHold\tAssign", "rpc Hold Assign"])
def test_table_with_a_wrong_row_is_refused_with_its_line(row: str, tmp_path: Path) -> None:
    path = tmp_path / "renames.tsv"
    path.write_text(f"surface\told\tnew\n{row}\n")
    with pytest.raises(RenameError, match=r"renames\.tsv:2: "):
        read_table(path)


def test_name_with_two_new_names_is_refused() -> None:
    with pytest.raises(RenameError, match="'Hold' becomes 'A' and 'B'"):
        translate("rpc", ["Hold"], [Rename("rpc", "Hold", "A"), Rename("*", "Hold", "B")])
