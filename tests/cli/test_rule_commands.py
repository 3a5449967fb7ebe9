"""`skep rule`: what is sent, what is printed, and what is said of a wrong file."""

import io
from pathlib import Path

import pytest

from skep.base.answers import Page
from skep.cli.main import main
from skep.rules.api import Fired, Rule, RuleSpec
from skep.tasks.model import Context, ContextSpec, TaskSpec
from tests.cli.fake import FakeSkep

SPEC = RuleSpec("check", ContextSpec("c", (TaskSpec(kind="noop"),)), source="**", refs=("main",), paths=("a*", "b"))
TEXT = """
name = "check"
source = "**"
refs = ["main"]
paths = ["a*", "b"]
context = {name = "c", tasks = [{kind = "noop"}]}
"""
CONTEXT = Context("ctx_1", "c", "RUNNING", "person:me", 1.0, 1, 1, 0)


def test_add(home: FakeSkep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.on("POST", "/api/v1/rules", 201, Rule(SPEC, "api", 1.0))
    (tmp_path / "one.toml").write_text(TEXT)
    (tmp_path / "two.toml").write_text(2 * ("[[rule]]\n" + TEXT))
    assert main(["rule", "add", "one.toml"]) == 0
    assert capsys.readouterr().out == "check  made\n"
    assert main(["rule", "add", "two.toml", "--json"]) == 0
    assert [asked.body["paths"] for asked in home.asked] == [["a*", "b"]] * 3


def test_add_from_standard_input(home: FakeSkep, monkeypatch: pytest.MonkeyPatch) -> None:
    home.on("POST", "/api/v1/rules", 201, Rule(SPEC, "api", 1.0))
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert main(["rule", "add", "-"]) == 0
    assert home.asked[0].body["name"] == "check"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"name = ", "is not TOML"),
        (b"\xff", "is not UTF-8"),
        (b"name = 'a'", "context"),
        (b"[[rule]]\nname = 'a'\ncontext = {name = 'x'}\nwhen = 1", "when"),
        (b"rule = 7", "Expected `array`"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_file_reaches_no_server(
    home: FakeSkep, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes | None, wrong: str
) -> None:
    if text is not None:
        (tmp_path / "rule.toml").write_bytes(text)
    assert main(["rule", "add", "rule.toml"]) == 2
    assert "rule.toml" in (said := capsys.readouterr().err) and wrong in said
    assert home.asked == []


def test_list_and_show(home: FakeSkep, capsys: pytest.CaptureFixture[str]) -> None:
    clock = RuleSpec("nightly\x1b[2J", SPEC.context, cron="0 3 * * *", enabled=False)
    rules = [Rule(SPEC, "file", 1.0, Fired("ctx_9", "change:bat_1", 2.0)), Rule(clock, "api", 1.0)]
    home.on("GET", "/api/v1/rules", 200, Page(rules))
    home.on("GET", "/api/v1/rules/check", 200, rules[0])
    assert main(["rule", "list"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "WHEN", "STATE", "FIRED", "CONTEXT"]
    assert "** ref:main path:a* path:b" in first and "on (skep.toml)" in first and first.endswith("ctx_9")
    assert "cron 0 3 * * *" in second and "never" in second and "\x1b" not in second
    assert main(["rule", "show", "check"]) == 0
    assert "change:bat_1" in capsys.readouterr().out


def test_switch_fire_and_remove(home: FakeSkep, capsys: pytest.CaptureFixture[str]) -> None:
    home.on("PATCH", "/api/v1/rules/check", 200, Rule(SPEC, "api", 1.0))
    home.on("POST", "/api/v1/rules/check/fire", 201, CONTEXT)
    home.on("DELETE", "/api/v1/rules/check", 204)
    for args in (["disable"], ["enable"], ["fire", "--source", "example.org/a"], ["remove"]):
        assert main(["rule", args[0], "check", *args[1:]]) == 0
    assert [asked.body for asked in home.asked] == [
        {"enabled": False},
        {"enabled": True},
        {"source": "example.org/a"},
        None,
    ]
    assert "ctx_1  c" in capsys.readouterr().out
    assert main(["rule", "show", "nothing"]) == 3
