"""Settings of isolation: what is refused, what may be seen and written in addition, and limits without being asked."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skep
from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Unavailable
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Limits
from skep.tasks.model import RunEnded as Ended
from tests.runtime import ordinary_worker
from tests.runtime.conftest import Told, script, shell

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


async def ran(folder: Path, command: Command, **settings: Any) -> tuple[Ended, str]:
    told = Told()
    given = Settings(**{"data": str(folder / "data"), **settings})
    async with Runtime(folder / "data" / "runtime", given, SystemClock()) as runtime:
        return await runtime.run(command, told), told.stdout.decode()


async def test_isolation_that_cannot_be_made_refuses_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"cannot isolate tasks.*bubblewrap: it is not installed") as error:
        await ran(tmp_path, shell("true"), task_isolation="bubblewrap")
    assert "task_isolation" in error.value.hint


async def test_isolation_none_runs_commands_as_the_worker(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    end, said = await ran(tmp_path, shell('cat "$1"', str(tmp_path / "file")), task_isolation="none")
    assert end.ok and said == "text"


async def test_network_that_the_worker_does_not_allow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="asks for the network") as error:
        await ran(tmp_path, msgspec.structs.replace(shell("true"), network=True))
    assert "task_network" in error.value.hint


async def test_limits_of_a_task_without_any_are_those_of_the_settings(tmp_path: Path) -> None:
    code = (
        "import json, resource as r\n"
        "print(json.dumps([r.getrlimit(x)[0] for x in (r.RLIMIT_CPU, r.RLIMIT_DATA, r.RLIMIT_FSIZE)]))"
    )
    end, said = await ran(tmp_path, script(code))
    assert end.ok and all(value > 0 for value in json.loads(said))
    given = {"task_max_cpu": 100.0, "task_max_memory": 10**9, "task_max_disk": 10**8}
    assert json.loads((await ran(tmp_path, script(code), **given))[1]) == [101, 2 * 10**9, 10**8]
    end, _ = await ran(tmp_path, shell("sleep 1000"), task_max_seconds=0.2)
    assert (end.reason, end.message) == ("time", "took longer than 0.2 s")


@pytest.mark.parametrize("name", ["seconds", "cpu", "memory", "disk", "processes"])
async def test_limits_above_those_of_the_settings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=f"limit {name} is 1,001, above task_max_{name}"):
        await ran(tmp_path, shell("true", limits=Limits(**{name: 1001})), **{f"task_max_{name}": 1000})


async def test_paths_of_the_settings_are_seen_or_written(tmp_path: Path) -> None:
    for name in ("seen", "written", "neither"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    paths = [str(tmp_path / name) for name in ("seen", "written", "neither")]
    code = 'for one in "$@"; do cat "$one/file" 2>/dev/null; echo x 2>/dev/null > "$one/new" && echo; done; true'
    _, said = await ran(tmp_path, shell(code, *paths), task_paths=(paths[0],), task_writable_paths=(paths[1],))
    assert said == "seenwritten\n"
    assert [(tmp_path / name / "new").exists() for name in ("seen", "written", "neither")] == [False, True, False]


async def test_secrets_below_a_path_that_is_seen_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / "seen" / name for name in ("skep.toml", "token", "key", "data/admin.token", "other")}
    for file in files.values():
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(file.name)
    monkeypatch.setenv("SKEP_CONFIG", str(files["skep.toml"]))
    named = {"token_file": str(files["token"]), "tls_key": str(files["key"]), "data": str(tmp_path / "seen" / "data")}
    command = shell('cat "$@" 2>/dev/null; true', *map(str, files.values()))
    (tmp_path / "seen" / "data" / "mirror").mkdir()
    (tmp_path / "seen" / "data" / "mirror" / "HEAD").write_text(" mirror")
    mirror = str(tmp_path / "seen" / "data" / "mirror")
    command = msgspec.structs.replace(command, argv=(*command.argv, f"{mirror}/HEAD"), readable=(mirror,))
    _, said = await ran(tmp_path / "seen", command, task_paths=(str(tmp_path / "seen"),), **named)
    assert said == "other mirror"


async def test_a_mirror_is_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "data" / "mirror").mkdir(parents=True)
    mirror = str(tmp_path / "data" / "mirror")
    command = shell('ls "$1" && touch "$1/file"', mirror)
    end, _ = await ran(tmp_path, msgspec.structs.replace(command, readable=(mirror,)))
    assert not end.ok and not (tmp_path / "data" / "mirror" / "file").exists()


@pytest.mark.parametrize("user", ["no-such-user", "root"])
async def test_a_task_user_that_cannot_be_is_named(tmp_path: Path, user: str) -> None:
    if user == "root" and os.getuid() == 0:
        assert (await ran(tmp_path, shell("true"), task_user=user))[0].ok  # it is the worker's own
        return
    with pytest.raises(BadInput, match="task_user"):
        await ran(tmp_path, shell("true"), task_user=user)


def _virtual(folder: Path) -> Path | None:
    """A Python that every user may run, with the modules of this one; none where their versions differ."""
    if os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists():
        return None
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    sites = list(folder.glob("lib/python*/site-packages"))
    modules = [str(Path(one.__file__ or "").parents[1]) for one in (skep, msgspec)]
    (sites[0] / "modules.pth").write_text("\n".join(modules))
    python = folder / "bin" / "python"
    works = subprocess.run([python, "-I", "-c", "import skep, msgspec._core"], user=NOBODY, check=False)
    return python if works.returncode == 0 else None


def test_a_worker_of_an_ordinary_user_isolates_its_tasks() -> None:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        folder.chmod(0o777)
        if (python := _virtual(folder / "venv")) is None:
            pytest.skip("not root, or this machine's own Python cannot use the modules of this one")
        shutil.copy(ordinary_worker.__file__, folder / "worker.py")
        done = subprocess.run(
            [python, folder / "worker.py", folder / "data"],
            user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.split() == ["landlock+namespaces", str(NOBODY), "no"], done
    finally:
        shutil.rmtree(folder, ignore_errors=True)
