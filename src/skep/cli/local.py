"""Pages made from the code, so that they cannot drift: the example file, docs/settings.md and docs/cli.md."""

import argparse
import os
import shutil
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
import shtab

from skep.base.errors import BadInput
from skep.benchmarks.api import BenchmarkSpec
from skep.cli.parser import FullCommand, build
from skep.config.loading import FIELDS, PREFIX, Origins, about, expected, load, load_tables, masked, shown
from skep.config.settings import Role, Settings
from skep.interfaces import terminal
from skep.interfaces.terminal import in_json, print_table
from skep.rpc.connect import CA_CERT, Authority
from skep.rules.api import RuleSpec
from skep.sources.cli import absolute
from skep.sources.model import CredentialSpec

# `skep completion SHELL`.

#: words of a query are completed by the server, which knows sources and languages; without one, not at all
_PREAMBLE = {
    # bash cuts words at colons, wants what follows the last, and reads it as if it had been typed
    "bash": r"""_skep_query() {
  local word="${COMP_LINE:0:$COMP_POINT}" field="" one
  word="${word##* }"
  [[ "$word" == *:* ]] && field="${word%:*}:"
  skep search --complete -- "$word" 2>/dev/null | while IFS= read -r one; do printf '%q\n' "${one#"$field"}"; done
}""",
    "zsh": '_skep_query() { compadd -S "" -- ${(f)"$(skep search --complete -- "$PREFIX" 2>/dev/null)"}; }',
}


def show(args: Namespace) -> None:
    script = shtab.complete(build(FullCommand), shell=args.shell, preamble=_PREAMBLE.get(args.shell, ""))
    sys.stdout.write(script + "\n")


_SETTINGS = """# Settings

Made from `src/skep/config/settings.py` by `make docs`. Later places win: default, `skep.toml` (in the working folder,
or the file named by `SKEP_CONFIG` or `--config`), variable, flag. `skep config` prints every value and where it came
from; `examples/skep.toml` is a file to start from. In variables and flags a list is written `one,two` or
`["one", "two"]`.

| setting | default | variable, flag | values | meaning |
|---|---|---|---|---|
"""

_CLI = """# The command line

Made from the parser by `make docs`. The commands speak to the server at `SKEP_URL` (else http://127.0.0.1:7337) with
the token in `SKEP_TOKEN`. On the machine of the server no token has to be given: the command finds `admin.token` in the
data folder that the server serves (`SKEP_DATA` names another), and sends it to loopback addresses only.

Tables, colours and relative times are for people. `--json` prints one JSON object per line, with times in seconds since
1970. `skep search` prints `source:path:line:column:text` when its output is no terminal or `NO_COLOR` is set.
`skep completion bash` prints the completion for a shell: `source <(skep completion bash)`.

## Exit codes
| code | meaning |
|---|---|
"""


def example() -> str:
    """A setting without a value in TOML (unset) stands as a comment."""
    parts = ["# Every setting of Skep with its default. Made by `make docs`; keep the lines you change.\n"]
    for name, field in FIELDS.items():
        default = field.default
        line = f"# {name} = true" if default is None else f"{name} = {msgspec.json.encode(default).decode()}"
        parts.append(f"# {about(name)} ({expected(name)})\n{line}\n")
    return "\n".join(parts)


def settings_page() -> str:
    return _SETTINGS + "".join(
        f"| `{name}` | `{shown(field.default)}` | `{PREFIX}{name.upper()}`, `{_flag(name)}` | {expected(name)} "
        f"| {about(name)} |\n"
        for name, field in FIELDS.items()
    )


def cli_page() -> str:
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in terminal.MEANING.items())
    return _CLI + codes + "\n## Commands\n" + "".join(_sections(build(FullCommand)))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _sections(parser: argparse.ArgumentParser, summary: str = "") -> Iterator[str]:
    verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not verbs:
        yield f"### `{parser.prog}`\n{summary}\n\n" + "".join(_arguments(parser)) + "\n"
    for action in verbs:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, child in action.choices.items():
            yield from _sections(child, helps[name])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    settings = 0
    for action in parser._actions:
        if action.dest.startswith("set_"):
            settings += 1
        elif action.dest != "help":
            names = ", ".join(action.option_strings) or str(action.metavar)
            value = "" if action.nargs == 0 or not action.option_strings else f" {_value(action)}"
            yield f"- `{names}{value}`: {(action.help or '').replace('%%', '%')}\n"
    if settings:
        yield "- a flag for every setting, such as `--data DIR` and `--listen HOST:PORT`: see [settings](settings.md)\n"


def _value(action: argparse.Action) -> str:
    return "|".join(action.choices) if action.choices else str(action.metavar or action.dest.upper())


def write(root: Path) -> None:
    for place, text in pages().items():
        (root / place).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    return {"examples/skep.toml": example(), "docs/settings.md": settings_page(), "docs/cli.md": cli_page()}


# `skep up` and the roles by themselves: settings first. Roles stand above doors, so they are named by text.


def settings_of(args: Namespace) -> tuple[Settings, Origins]:
    flags = {name: getattr(args, f"set_{name}", None) for name in FIELDS}
    return load(os.environ, config=args.config, flags=flags, warn=_warn)


def _warn(text: str) -> None:
    print(f"skep: {text}", file=sys.stderr)


def up(args: Namespace) -> int:
    settings, _ = settings_of(args)
    return _run(settings, args, tuple(absolute(url) for url in args.add))


def _alone(role: Role, args: Namespace) -> int:
    """With those beside it that the settings name together with it; a file for other machines changes nothing."""
    settings, origins = settings_of(args)
    if origins["roles"] == "default" or role not in settings.roles:
        settings = msgspec.structs.replace(settings, roles=(role,))
    return _run(settings, args)


coordinator = partial(_alone, "coordinator")
aggregator = partial(_alone, "aggregator")
manager = partial(_alone, "manager")
worker = partial(_alone, "worker")


def _run(settings: Settings, args: Namespace, urls: tuple[str, ...] = ()) -> int:
    if args.config:  # a worker hides this file from tasks, and it may be another process
        os.environ["SKEP_CONFIG"] = os.path.abspath(args.config)  # noqa: PTH100
    if not {"coordinator", "aggregator"} & set(settings.roles):
        return import_module("skep.processes.worker").member_main(settings) or 0
    read = partial(load_tables, environ=os.environ, config=args.config)
    tables = (read(kind) for kind in (RuleSpec, CredentialSpec, BenchmarkSpec))
    return import_module("skep.processes.up").main(settings, urls, *tables) or 0


# `skep ca …`: the fleet's own certificates, made where the coordinator keeps its data.


def init(args: Namespace) -> None:
    settings, _ = settings_of(args)
    folder = Path(settings.data) / "tls"
    hosts = list(dict.fromkeys([*args.hosts, socket.gethostname(), "localhost", "127.0.0.1", "::1"]))
    authority = _authority(folder)
    authority.issue(hosts, folder)
    print(f"{'a new CA' if authority.is_new else 'the CA that was there'}, and a certificate for {', '.join(hosts)}")
    print(f"in {folder}; keep ca.key to yourself. A running coordinator uses them after a restart")


def issue(args: Namespace) -> None:
    settings, _ = settings_of(args)
    folder, out = Path(settings.data) / "tls", Path(args.out)
    if not (folder / CA_CERT).exists():
        raise BadInput(f"there is no CA in {folder}", hint="make it with `skep ca init`, or name its --data")
    _authority(folder).issue(args.hosts, out)
    shutil.copyfile(folder / CA_CERT, out / CA_CERT)
    print(f"a certificate for {', '.join(args.hosts)} in {out}: put its files into DATA/tls of that coordinator")


def _authority(folder: Path) -> Authority:
    try:
        return Authority(folder, time.time())
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}", hint="name another with --data") from error


# `skep config`: every setting, its value and where it came from.


def settings_show(args: Namespace) -> None:
    if args.example:
        sys.stdout.write(example())
        return
    settings, origins = settings_of(args)
    values = msgspec.structs.asdict(settings)
    if in_json(
        args, *({"name": name, "value": masked(value), "origin": origins[name]} for name, value in values.items())
    ):
        return
    print_table(("SETTING", "VALUE", "FROM"), [(name, shown(value), origins[name]) for name, value in values.items()])


if __name__ == "__main__":
    write(Path())
