"""Where secrets come from, and that they stay over a restart."""

import sys
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, Conflict, Damaged, NotFound
from skep.sources.credentials import Credentials
from skep.sources.model import CredentialSpec
from tests.rooms.house import House


def counting(tmp_path: Path) -> tuple[str, ...]:
    """A command that says another token each time."""
    count = tmp_path / "count"
    code = f"p = open({str(count)!r}, 'a'); p.write('x'); p.close(); print('t' + str(len(open({str(count)!r}).read())))"
    return (sys.executable, "-c", code)


async def tokens(room: Credentials) -> dict[str, str]:
    return {key.name: key.token for key in await room.keys()}


async def test_file_variable_and_command(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("OUR_TOKEN", "from-variable")
    specs = [
        CredentialSpec("file", "a.org", token_file=str(tmp_path / "token")),
        CredentialSpec("variable", "b.org", token_env="OUR_TOKEN"),
        CredentialSpec("command", "c.org", command=counting(tmp_path)),
        CredentialSpec("absent", "d.org", token_file=str(tmp_path / "nowhere")),
        CredentialSpec("unset", "e.org", token_env="NOT_SET"),
        CredentialSpec("broken", "f.org", command=("/no/such/program",)),
        CredentialSpec("failing", "g.org", command=("false",)),
        CredentialSpec("endless", "g.org", command=("yes",)),
        CredentialSpec("gone", "h.org", source="no/such/source", token_env="OUR_TOKEN"),
    ]
    room = Credentials(house.db, house.clock, tmp_path, house.sources, specs)
    await room.start()
    assert await tokens(room) == {"file": "from-file", "variable": "from-variable", "command": "t1"}
    (tmp_path / "token").write_text("rotated")
    assert (await tokens(room))["file"] == "rotated"
    assert (await tokens(room))["command"] == "t1"
    house.clock.time += 601.0
    assert (await tokens(room))["command"] == "t2"
    problems = {info.name: info.problem for info in await room.list(SYSTEM)}
    assert [name for name, problem in problems.items() if problem] == [
        "absent",
        "unset",
        "broken",
        "failing",
        "endless",
    ]
    with pytest.raises(Conflict):
        await room.put(SYSTEM, CredentialSpec("file", "a.org"), "x")


async def test_set_ones_stay_over_a_restart(house: House, tmp_path: Path) -> None:
    room = Credentials(house.db, house.clock, tmp_path, house.sources)
    await room.start()
    await room.put(SYSTEM, CredentialSpec("ours", "a.org"), "one")
    await room.put(SYSTEM, CredentialSpec("ours", "a.org"), "two")
    await room.put(SYSTEM, CredentialSpec("hook", "a.org", use="hook"), "three")
    again = Credentials(house.db, house.clock, tmp_path, house.sources)
    await again.start()
    assert await tokens(again) == {"ours": "two"}
    assert [key.token for key in await again.hooks()] == ["three"]
    await again.remove(SYSTEM, "ours")
    assert sorted(path.name for path in (tmp_path / "credentials").iterdir()) == ["hook.json"]
    (tmp_path / "credentials/hook.json").write_text("{")
    with pytest.raises(Damaged):
        await Credentials(house.db, house.clock, tmp_path, house.sources).start()


@pytest.mark.parametrize(
    "spec",
    [
        CredentialSpec("a", "h.org"),
        CredentialSpec("a", "h.org", token_env="X", token_file="y"),
        CredentialSpec("a/b", "h.org", token_env="X"),
        CredentialSpec("a", "https://h.org", token_env="X"),
    ],
)
async def test_a_file_that_is_wrong_stops_the_start(house: House, tmp_path: Path, spec: CredentialSpec) -> None:
    with pytest.raises(BadInput):
        await Credentials(house.db, house.clock, tmp_path, house.sources, [spec]).start()


async def test_what_a_forge_is_shown(house: House, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    specs = [
        CredentialSpec("one", "api.a.org", use="api", token_file=str(tmp_path / "token")),
        CredentialSpec("other", "b.org", use="api", token_file=str(tmp_path / "nowhere")),
        CredentialSpec("fetching", "api.a.org", token_file=str(tmp_path / "token")),
    ]
    room = Credentials(house.db, house.clock, tmp_path, house.sources, specs)
    await room.start()
    await room.put(SYSTEM, CredentialSpec("two", "api.a.org", use="api"), "set")
    assert [(key.name, key.token) for key in await room.apis("api.a.org")] == [("one", "from-file"), ("two", "set")]
    assert await room.apis("a.org") == [] and [key.name for key in await room.keys()] == ["fetching"]
    with pytest.raises(NotFound, match="cannot be read"):  # without it, the forge would show less
        await room.apis("b.org")
