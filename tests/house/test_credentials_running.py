"""A private upstream, its credential set, rotated and expired, on a whole running Skep."""

import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.sources import testing
from tests.house.running import SKEP, RunningSkep, environment
from tests.support.forge import Fault, Forge

FIRST, SECOND, HOOK = "first-token-31", "second-token-32", "hook-secret-33"


@pytest.fixture(scope="module")
def guarded_skep(tmp_path_factory: pytest.TempPathFactory, forge: Forge) -> Iterator[RunningSkep]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "hook").write_text(HOOK + "\n")
    (folder / "skep.toml").write_text(
        f'[[credential]]\nname = "hook"\nhost = "127.0.0.1"\nuse = "hook"\ntoken_file = "{folder}/hook"\n'
        '[[credential]]\nname = "missing"\nhost = "h.org"\ncommand = ["false"]\n'
    )
    running = RunningSkep(folder / "data", config=str(folder / "skep.toml"), log_level="debug", poll_min=3600.0)
    yield running
    running.stop()


def put(skep: RunningSkep, host: str, token: str) -> None:
    variables = environment({}) | {"SKEP_URL": skep.url, "SKEP_TOKEN": skep.token}
    command = [*SKEP, "credential", "set", "ours", "--host", host, "--user", "robot"]
    done = subprocess.run(command, input=token + "\n", env=variables, capture_output=True, text=True, check=True)
    assert token not in done.stdout + done.stderr


def test_set_rotate_expire(guarded_skep: RunningSkep, forge: Forge) -> None:
    skep, host = guarded_skep, f"127.0.0.1:{forge.port}"
    repo = forge.create("org/vault", {"a": b"waggle dance\n"})
    forge.fault("org/vault", Fault(auth=f"robot:{FIRST}"))
    put(skep, host, FIRST)
    skep.cli("source", "add", forge.url("org/vault"), "--private", "--wait")
    # a public source of the same host is not read with it
    assert skep.cli("source", "add", forge.url("org/vault") + "x", "--wait", check=False).returncode == 6
    assert "Authorization" not in forge.requests[-1].headers

    forge.fault("org/vault", Fault(auth=f"robot:{SECOND}"))
    refused = skep.cli("source", "fetch", forge.url("org/vault"), "--wait", check=False)
    assert refused.returncode == 6
    assert "the credential 'ours' is no longer accepted" in refused.stderr
    skep.cli("source", "fetch", forge.url("org/vault"), "--wait", check=False)
    told = [row["body"] for row in skep.rows("topic", "read", "skep.failures")]
    assert len([one for one in told if one["kind"] == "auth" and one["url"] == forge.url("org/vault")]) == 1
    noted = {row["name"]: row["refused"] for row in skep.rows("credential", "list")}
    assert noted == {"hook": 0, "missing": 0, "ours": 1}

    commit = repo.commit({"a": b"round dance\n"})
    shown, now = skep.rows("source", "show", forge.url("org/vault"))[0], time.time()
    put(skep, host, SECOND)  # and the source is looked at again by itself
    place = f"/api/v1/sources/{shown['id']}/wait?commit={commit}&looked_after={now}&timeout=60"
    waited = skep.get(place, Authorization=f"Bearer {skep.token}")
    assert (waited[1]["settled"], waited[1]["source"]["state"]) == (True, "current")
    again = repo.commit({"a": b"tremble dance\n"})
    assert testing.github(forge.url("org/vault"), HOOK, after=again).send(f"{skep.url}/hooks/github") == 202
    waited = skep.get(place.replace(commit, again), Authorization=f"Bearer {skep.token}")
    assert waited[1]["settled"]  # nobody else asked for it, and its next turn is an hour away


def test_after_a_restart_it_still_works(guarded_skep: RunningSkep, forge: Forge) -> None:
    skep = guarded_skep
    skep.stop()
    skep.start()
    skep.cli("source", "fetch", forge.url("org/vault"), "--wait")


def test_no_secret_is_anywhere_but_in_its_file(guarded_skep: RunningSkep) -> None:
    skep = guarded_skep
    listed = skep.cli("credential", "list").stdout + skep.cli("credential", "list", "--json").stdout
    everything = "".join(skep.log) + listed + skep.cli("source", "list", "--json").stdout
    assert not any(secret in everything for secret in (FIRST, SECOND, HOOK))
    assert "gives no secret" in listed
    holders = []
    for path in skep.data.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in (FIRST, SECOND, HOOK)):
            holders.append(path)
    assert holders == [skep.data / "credentials/ours.json"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(holders[0].parent.stat().st_mode) == 0o700
    for pid in [skep.process.pid, *skep.children()]:
        assert SECOND.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
