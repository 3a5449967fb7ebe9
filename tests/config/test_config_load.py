import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput
from skep.cli.local import example, pages
from skep.config.loading import FIELDS, load, load_tables
from skep.config.settings import Settings
from skep.sources.model import CredentialSpec

ROOT = Path(__file__).parents[2]
#: one value per kind of setting, as a file, a variable or a flag may give it
numbers = st.fixed_dictionaries(
    {},
    optional={
        "look_timeout": st.floats(0.5, 1e6),
        "host_concurrency": st.integers(1, 10_000),
        "open_read": st.booleans(),
        "durability": st.sampled_from(["full", "delayed"]),
        "allow_schemes": st.lists(st.sampled_from(["https", "http", "ssh"]), max_size=3),
    },
)


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_toml(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {as_text(v) if isinstance(v, bool) else repr(v)}\n" for key, v in values.items())


@given(file=numbers, variables=numbers, flags=numbers)
def test_later_places_win(tmp_path_factory: pytest.TempPathFactory, file: Any, variables: Any, flags: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "precedence.toml"
    path.write_text(as_toml(file))
    environ = {f"SKEP_{key.upper()}": as_text(value) for key, value in variables.items()}
    settings, origins = load(
        environ, config=str(path), flags={key: as_text(value) for key, value in flags.items()} | {"listen": None}
    )
    default = Settings()
    for name in FIELDS:
        wanted, origin = getattr(default, name), "default"
        for place, values in (
            (str(path), file),
            (f"SKEP_{name.upper()}", variables),
            (f"--{name.replace('_', '-')}", flags),
        ):
            if name in values:
                wanted, origin = values[name], place
        assert getattr(settings, name) == (tuple(wanted) if isinstance(wanted, list) else wanted)
        assert origins[name] == origin


BAD = [
    ({"SKEP_POLL_MIN": "soon"}, 'SKEP_POLL_MIN: wants number above 0, not "soon"'),
    ({"SKEP_POLL_MIN": "0"}, "SKEP_POLL_MIN"),
    ({"SKEP_POLL_MIN": "nan"}, "SKEP_POLL_MIN"),
    ({"SKEP_POLL_MAX": "inf"}, "SKEP_POLL_MAX: must be a finite number"),
    ({"SKEP_INDEX_PROCESSES": "-1"}, "SKEP_INDEX_PROCESSES: wants whole number of at least 0"),
    ({"SKEP_FETCH_CONCURRENCY": "1.5"}, "SKEP_FETCH_CONCURRENCY: wants whole number"),
    ({"SKEP_OPEN_READ": "perhaps"}, "SKEP_OPEN_READ: wants true or false"),
    ({"SKEP_DURABILITY": "some"}, "SKEP_DURABILITY: wants one of delayed, full"),
    ({"SKEP_ALLOW_NETWORKS": "10.0.0.0/33"}, "SKEP_ALLOW_NETWORKS: '10.0.0.0/33'"),
    ({"SKEP_ALLOW_NETWORKS": "[1]"}, "SKEP_ALLOW_NETWORKS: wants list of texts"),
    ({"SKEP_ALLOW_NETWORKS": "[1"}, "SKEP_ALLOW_NETWORKS: is not a JSON list"),
    ({"SKEP_LISTEN": "7337"}, "SKEP_LISTEN: '7337' is not HOST:PORT"),
    ({"SKEP_LISTEN": "localhost:70000"}, "SKEP_LISTEN: '70000' is not a port"),
    ({"SKEP_LISTEN": "::1:80"}, "[ADDRESS]:PORT"),
    ({"SKEP_DATA": ""}, "SKEP_DATA: names no folder"),
    ({"SKEP_PUBLIC_URL": "http://["}, "SKEP_PUBLIC_URL"),
    ({"SKEP_PUBLIC_URL": "ftp://example.org"}, "is not an http or https URL"),
    ({"SKEP_POLL_MIN": "90", "SKEP_POLL_MAX": "30"}, "poll_min (90, from SKEP_POLL_MIN) is greater than poll_max (30"),
    ({"SKEP_CONFIG": "/nowhere/skep.toml"}, "/nowhere/skep.toml: cannot be read: No such file"),
]


@pytest.mark.parametrize(("environ", "message"), BAD, ids=[message for _, message in BAD])
def test_an_error_names_the_variable_and_what_is_wrong(environ: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput) as error:
        load(environ)
    assert message in error.value.message


BAD_FILES = [
    (b"poll_mni = 3", "unknown setting 'poll_mni'", "did you mean 'poll_min'?"),
    (b"zzzzzzzz = 3", "unknown setting 'zzzzzzzz'", "`skep config` lists every setting"),
    (b'poll_min = "3"', 'poll_min: wants number above 0, not "3"', "shortest time"),
    (b"[poll]\nmin = 3", "unknown setting 'poll'", ""),
    (b"poll_min = ", "is not TOML", "--example"),
    (b"data = '\xff'", "is not TOML", "--example"),
]


@pytest.mark.parametrize(("text", "message", "hint"), BAD_FILES, ids=[message for _, message, _ in BAD_FILES])
def test_an_error_in_the_file_names_file_and_key(tmp_path: Path, text: bytes, message: str, hint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    with pytest.raises(BadInput) as error:
        load({}, config=str(path))
    assert error.value.message.startswith(str(path))
    assert message in error.value.message
    assert hint in error.value.hint


def test_flags_are_named_in_errors() -> None:
    with pytest.raises(BadInput, match="--poll-min: wants number"):
        load({}, flags={"poll_min": "x"})


def test_the_file_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("skep.toml").write_text("poll_min = 5")
    settings, origins = load({})
    assert (settings.poll_min, origins["poll_min"]) == (5.0, "skep.toml")


def test_unknown_variables_only_warn_and_the_clients_own_do_not() -> None:
    warnings: list[str] = []
    load({"SKEP_POL_MIN": "1", "SKEP_URL": "x", "SKEP_TOKEN": "y", "HOME": "/"}, warn=warnings.append)
    assert warnings == ["variable SKEP_POL_MIN is no setting and is ignored; did you mean 'SKEP_POLL_MIN'?"]


def test_the_example_holds_every_setting_at_its_default() -> None:
    text = example()
    values = tomllib.loads(text)
    assert set(values) | {name for name in FIELDS if f"# {name} = " in text} == set(FIELDS)
    assert all(getattr(Settings(), name) == (tuple(v) if isinstance(v, list) else v) for name, v in values.items())


@pytest.mark.parametrize("place", list(pages()))
def test_generated_pages_are_fresh(place: str) -> None:
    assert (ROOT / place).read_text(encoding="utf-8") == pages()[place], "run `make docs`"


def test_credentials_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text('[[credential]]\nname = "a"\nhost = "h.org"\ntoken_env = "TOKEN"\ncommand = ["x"]\n')
    (spec,) = load_tables(CredentialSpec, {}, config=str(file))
    assert (spec.name, spec.host, spec.user, spec.use, spec.command) == (
        "a",
        "h.org",
        "x-access-token",
        "fetch",
        ("x",),
    )
    load({}, config=str(file))
    file.write_text('[[credential]]\nname = "a"\nhost = "h.org"\ntoken = "in the clear"\n')
    with pytest.raises(BadInput, match="token") as error:
        load_tables(CredentialSpec, {}, config=str(file))
    assert "in the clear" not in error.value.message
