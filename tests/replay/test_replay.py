"""The replay finds nothing between a version and itself, and whatever is planted; the corpus is what its seed makes."""

import sys
from pathlib import Path

import pytest

from tests.replay import corpus
from tests.replay.renames import Renames
from tests.replay.run import Difference, replayed, sides

HERE = [sys.executable, "-m", "skep"]
PATCHED = [sys.executable, str(Path(__file__).parent / "patched.py")]
SHORT = 300


def found(new: list[str], folder: Path, lines: list[dict[str, object]]) -> list[Difference]:
    with sides(HERE, new, Renames(), folder) as (old_side, new_side):
        return [one for one in replayed(old_side, new_side, lines) if one is not None]


def test_replay_of_this_tree_against_itself_has_no_difference(tmp_path: Path) -> None:
    differences = found(HERE, tmp_path, corpus.load(SHORT))
    assert not differences, "\n\n".join(str(one) for one in differences)


RULE = {"name": "r", "source": "**", "enabled": False, "context": {"name": "x", "tasks": [{"argv": ["true"]}]}}
#: requests, and what is seen of the behaviour that patched.py changes
PLANTED: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({"role": "admin", "method": "POST", "path": "/api/v1/rules", "json": RULE}, ('-  "enabled"', '+  "isenabl"')),
    ({"role": "admin", "method": "GET", "path": "/api/v1/rules/r"}, ()),
    ({"role": "admin", "method": "POST", "path": "/api/v1/tokens", "json": {"subject": "s", "scopes": ["read"]}},
     ("-status 201", "+status 200")),
    ({"role": "admin", "method": "GET", "path": "/api/v1/topics"},
     ('-   "name": "skep.changes"', '+   "name": "skep.failures"')),
    ({"role": "none", "method": "GET", "path": "/healthz"}, ("-x-frame-options: DENY",)),
    ({"role": "none", "method": "GET", "path": "/readyz"}, ()),
]  # fmt: skip


def test_replay_of_a_changed_field_status_order_and_header_shows_each(tmp_path: Path) -> None:
    differences = {one.number: one.diff for one in found(PATCHED, tmp_path, [line for line, _ in PLANTED])}
    for number, (_, shown) in enumerate(PLANTED, 1):
        assert bool(shown) == (number in differences), (number, differences)
        for line in shown:
            assert any(one.startswith(line) for one in differences[number]), differences[number]


def test_corpus_in_the_repository_is_what_its_seed_makes() -> None:
    assert corpus.FILE.read_text() == corpus.text(corpus.generated()), "python -m tests.replay.corpus writes it"
    assert corpus.FILE.stat().st_size < 1_000_000


def test_corpus_asks_for_every_group_of_routes() -> None:
    asked = {line["path"].split("?")[0] for line in corpus.load()}
    groups = ("sources", "lists", "search", "searches", "topics", "spaces", "contexts", "tasks", "results", "rules")
    for name in (*groups, "workers", "benchmarks", "dataone", "credentials", "tokens", "packages", "evaluations"):
        assert any(path.startswith(f"/api/v1/{name}") for path in asked), name
    for begins in ("/git/", "/cn/v2/query", "/producer/", "/consumer/", "/sources/", "/record", "/hooks/", "/mn/"):
        assert any(path.startswith(begins) for path in asked), begins


def test_renames_translate_requests_and_answers(tmp_path: Path) -> None:
    file = tmp_path / "renames.tsv"
    file.write_text(
        "# surface, old, new, path\n"
        "route\t/api/v1/lists\t/api/v1/source-lists\n"
        "route\t/api/v1/sources/{id}/accept\t/api/v1/sources/{id}/approve\n"
        "query\tlines\tlimit\t^/api/v1/search\n"
        "field\tplaces\toffsets\n"
        "value\tasking\tneeds_approval\n"
        "text\tthere is no\tunknown:\n"
        "html\tNext look\tNext poll\n"
    )
    renames = Renames.read(file)
    assert renames.path("/api/v1/lists/x?limit=1") == "/api/v1/source-lists/x?limit=1"
    assert renames.path("/api/v1/listsx") == "/api/v1/listsx"
    assert renames.path("/api/v1/sources/s1/accept?x=1") == "/api/v1/sources/s1/approve?x=1"
    assert renames.path("/api/v1/search?q=a&lines=3") == "/api/v1/search?q=a&limit=3"
    assert renames.path("/api/v1/log?lines=3") == "/api/v1/log?lines=3"
    answer = {"places": [{"state": "asking", "message": "there is no x"}]}
    translated = {"offsets": [{"state": "needs_approval", "message": "unknown: x"}]}
    assert renames.answer(answer, "/api/v1/x") == translated
    assert renames.text("Next look", "/", page=True) == "Next poll"
    assert renames.text("Next look", "/", page=False) == "Next look"


def test_renames_with_an_unknown_surface_are_refused(tmp_path: Path) -> None:
    (tmp_path / "renames.tsv").write_text("unknown\ta\tb\n")
    with pytest.raises(ValueError, match="unknown surface"):
        Renames.read(tmp_path / "renames.tsv")
