"""`skep simulate`: from the command line to the numbers."""

import json
from pathlib import Path

import pytest

from skep.cli.main import main
from skep.interfaces import terminal


def test_both_rules_are_shown_at_the_same_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "population.toml"
    file.write_text("[[group]]\nsources = 3\ncommits_per_day = 12\n[[group]]\nsources = 30\ncommits_per_day = 0.1\n")
    asked = ["simulate", "--file", str(file), "--days", "12", "--seed", "4"]
    assert main([*asked, "--json"]) == terminal.OK
    ours, theirs = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ours["rule"] == "share"
    assert ours["looks_per_day"] <= 1.02 * theirs["looks_per_day"]
    assert ours["mean"] < theirs["mean"]
    assert main([*asked, "--rule", "cube_root", "--budget", "100"]) == terminal.OK
    text = capsys.readouterr().out
    assert text.startswith("RULE")
    assert "times as soon" in text


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--sources", "0"], "cannot be simulated"),
        (["--days", "nan"], "no schedule"),
        (["--poll-min", "9", "--poll-max", "1"], "no schedule"),
        (["--budget", "-1"], "no schedule"),
        (["--file", "/nowhere"], "cannot be read"),
        (["--file", "{tmp}/bad"], "is no population"),
        (["--file", "{tmp}/none"], "is no population"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").write_text("[[group]\n")
    (tmp_path / "none").write_text("group = []\n")
    assert main(["simulate", *(word.format(tmp=tmp_path) for word in words)]) == terminal.BAD_INPUT
    assert complaint in capsys.readouterr().err
