"""Limits of single hosts, from the file to the schedule."""

from pathlib import Path

import pytest

from skep.base.errors import BadInput
from skep.config.loading import load
from skep.config.settings import HostLimit


def test_hosts_are_tables_of_the_file_or_json_of_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text('[[host]]\nname = "git.example.org"\nrate = 5.0\n[[host]]\nname = "b"\nconcurrency = 2\n')
    settings, origins = load({}, config=str(file))
    assert settings.host == (HostLimit("git.example.org", rate=5.0), HostLimit("b", concurrency=2))
    assert origins["host"] == str(file)
    settings, _ = load({"SKEP_HOST": '[{"name": "c", "rate": 1}]'})
    assert settings.host == (HostLimit("c", rate=1.0),)


@pytest.mark.parametrize("table", ['name = "a"\nrate = 0', "rate = 1.0", 'name = "a"\nspeed = 1'])
def test_senseless_tables_are_refused(tmp_path: Path, table: str) -> None:
    file = tmp_path / "skep.toml"
    file.write_text(f"[[host]]\n{table}\n")
    with pytest.raises(BadInput, match="host: wants list of tables"):
        load({}, config=str(file))
