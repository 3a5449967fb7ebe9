"""The files of deploy/ where no engine can run them: read as an engine would, and held to rules."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from skep.cli.parser import build
from skep.config.loading import FIELDS, RESERVED, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "skep@.service"
#: what compose puts in for a variable, as far as these files use it
_VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word.upper(), " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


def services() -> dict[str, dict[str, Any]]:
    whole: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return dict(whole["services"])


def ours() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in services().items() if one["image"] == "skep"}


def test_the_image_is_built_in_stages_and_runs_as_nobody() -> None:
    found = instructions()
    words = [word for word, _ in found]
    known = {"FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert set(words) <= known
    bases = [rest for word, rest in found if word == "FROM"]
    assert len(bases) == 2 and all(re.match(r"[\w./-]+:[\w.-]+( AS \w+)?$", base) for base in bases)
    assert not any(":latest" in base for base in bases)
    last = found[len(words) - 1 - words[::-1].index("FROM") :]
    users = [rest for word, rest in last if word == "USER"]
    assert users and users[-1] not in ("root", "0")
    after = [word for word, _ in last[[word for word, _ in last].index("USER") :]]
    assert "RUN" not in after and "COPY" not in after
    for word, rest in last:
        if word in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list)


def test_the_image_takes_locked_packages_and_nothing_by_address() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert "://" not in text and "curl" not in text and "wget" not in text
    runs = [rest for word, rest in instructions() if word == "RUN"]
    for run in runs:
        if "apt-get install" in run:
            assert "--no-install-recommends" in run and "rm -rf /var/lib/apt/lists/*" in run
        if "pip install" in run:
            assert "--require-hashes" in run or "--no-deps" in run
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            assert all((ROOT / place).exists() for place in rest.split()[:-1]), rest


def test_every_part_of_a_fleet_is_there() -> None:
    wanted = {"postgres", "nats", "opensearch", "coordinator", "aggregator", "manager", "worker"}
    assert wanted <= set(services())
    for name, one in services().items():
        assert one["image"] == "skep" or re.search(r":\d[\w.-]*$", one["image"]), f"{name} has no version"
    for one in ours().values():
        assert one["read_only"] and one["cap_drop"] == ["ALL"]


def test_only_the_aggregator_is_reachable_and_members_only_dial() -> None:
    assert {name for name, one in services().items() if one.get("ports")} == {"aggregator"}
    for name in ("worker", "manager"):
        given = ours()[name]["environment"]
        assert set(given) == {"SKEP_COORDINATORS", "SKEP_TOKEN_FILE", "SKEP_TLS_CA"}
        assert ours()[name]["volumes"][0] == "/data", "each of many has a volume of its own"
        assert "container_name" not in ours()[name] and "hostname" not in ours()[name]


def test_what_services_name_is_declared() -> None:
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for one in whole["services"].values():
        assert set(one.get("secrets", ())) <= set(whole["secrets"])
        assert set(one.get("depends_on", ())) <= set(whole["services"])
        named = {place.partition(":")[0] for place in one.get("volumes", ()) if not place.startswith("/")}
        assert named <= set(whole["volumes"])


@pytest.mark.parametrize("name", sorted(ours()))
def test_settings_and_commands_are_real(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    one = ours()[name]
    given = {
        key: _VARIABLE.sub(lambda found: found[2] or "", str(value))
        for key, value in one.get("environment", {}).items()
    }
    assert {key.removeprefix("SKEP_").lower() for key in given if key not in RESERVED} <= set(FIELDS)
    load(given, warn=pytest.fail)
    if "command" in one:
        assert build().parse_args(one["command"]).run.startswith("server:")


@pytest.mark.parametrize("role", ["coordinator", "aggregator", "manager", "worker"])
def test_the_unit_is_sound(role: str, tmp_path: Path) -> None:
    text = UNIT.read_text()
    command = re.search(r"^ExecStart=/opt/skep/bin/skep (.+)$", text, re.MULTILINE)
    assert command and build().parse_args(command[1].replace("%i", role).split()).run.startswith("server:")
    for line in ("DynamicUser=yes", "Restart=on-failure", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert line in text.splitlines()
    assert "StateDirectory=skep-%i" in text and "SKEP_DATA=%S/skep-%i" in text
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return  # the rules above hold everywhere; systemd's own opinion only where it is
    copy = tmp_path / f"skep@{role}.service"
    copy.write_text(text.replace("/opt/skep/bin/skep", sys.executable))
    done = subprocess.run([verify, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if copy.stem in line]
    assert complaints == []
