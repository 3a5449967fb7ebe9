"""Settings: names, types, defaults, variables, options, tables of the file, and how wrong values are refused."""

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from skep.base.errors import BadInput
from skep.benchmarks.api import BenchmarkSpec
from skep.config.loading import FIELDS, PREFIX, RESERVED, about, expected, load, load_tables
from skep.config.settings import HostLimit, LabelSettings, Settings
from skep.rules.api import RuleSpec
from skep.sources.model import CredentialSpec

from ..lines import line, quoted
from .types import name_of, struct_lines

_TABLES: Mapping[str, type[msgspec.Struct]] = {
    "host": HostLimit,
    "label": LabelSettings,
    "rule": RuleSpec,
    "credential": CredentialSpec,
    "benchmark": BenchmarkSpec,
}
#: values of which each setting refuses at least one, if it refuses anything
_WRONG = ("wrong", "-1", "0", "nan", "[1")
#: what a file may say wrongly
_FILES = {
    "unknown setting": "poll_mim = 1\n",
    "unknown setting without a near one": "zzzzzzzz = 1\n",
    "not TOML": "poll_min = \n",
    "text for a number": 'poll_min = "60"\n',
    "number for a text": "data = 5\n",
    "number for a list": "labels = 5\n",
    "empty roles": "roles = []\n",
    "unknown role": 'roles = ["queen"]\n',
    "poll_min above poll_max": "poll_min = 100.0\npoll_max = 10.0\n",
    "network": 'allow_networks = ["300.0.0.0/8"]\n',
    "public_url": 'public_url = "ftp://example.org"\n',
    "coordinators": 'coordinators = ["nowhere"]\n',
    "link_listen": 'link_listen = "::1:80"\n',
    "unknown field of a host": '[[host]]\nname = "a"\nspeed = 1\n',
    "unknown field of a label": '[[label]]\nname = "a"\nspeed = 1\n',
    "unknown field of a rule": '[[rule]]\nname = "a"\nspeed = 1\n',
    "unknown field of a credential": '[[credential]]\nname = "a"\nspeed = 1\n',
    "unknown field of a benchmark": '[[benchmark]]\nname = "a"\nspeed = 1\n',
}


def record(folder: Path) -> Iterator[str]:
    hints = typing.get_type_hints(Settings, include_extras=True)
    for name, field in FIELDS.items():
        variable = f"{PREFIX}{name.upper()}"
        yield line("setting", name, "default", quoted(msgspec.to_builtins(field.default)))
        yield line("setting", name, "type", name_of(hints[name]))
        yield line("setting", name, "values", quoted(expected(name)))
        yield line("setting", name, "about", quoted(about(name)))
        yield line("setting", name, "variable", variable)
        yield line("setting", name, "option", f"--{name.replace('_', '-')}")
        for text in _WRONG:
            refusal = _refusal({variable: text}).replace(f" | {name} is: ", " | NAME is: ")
            yield line("setting", name, "given", quoted(text), refusal)
    for table, kind in _TABLES.items():
        yield from struct_lines(kind, "table", table)
    yield from (line("variables that are not settings", name, "yes") for name in RESERVED)
    for what, text in _FILES.items():
        path = folder / "golden.toml"
        path.write_text(text)
        yield line("file", what, _refusal({"SKEP_CONFIG": str(path)}).replace(str(folder), "FOLDER"))
    yield line("file", "missing", _refusal({"SKEP_CONFIG": str(folder / "none")}).replace(str(folder), "FOLDER"))
    yield line("variable", "SKEP_POLL_MIM", quoted(_warnings({"SKEP_POLL_MIM": "1"})))
    yield line("variable", "SKEP_ZZZZZZZZ", quoted(_warnings({"SKEP_ZZZZZZZZ": "1"})))


def _refusal(environ: dict[str, str]) -> str:
    config = environ.get("SKEP_CONFIG") or "/dev/null"
    try:
        load(environ, config=config)
        for kind in (RuleSpec, CredentialSpec, BenchmarkSpec):
            load_tables(kind, environ, config=config)
    except BadInput as error:
        return quoted(f"{error.message} | {error.hint}")
    return "accepted"


def _warnings(environ: dict[str, str]) -> list[str]:
    found: list[str] = []
    load(environ, config="/dev/null", warn=found.append)
    return found
