"""Pages made from the code, so that they cannot drift: the example file, docs/settings.md and docs/cli.md."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.config_load import FIELDS, PREFIX, about, expected, shown
from skep.doors.cli import exits
from skep.doors.cli.parser import FullCommand, build

_SETTINGS = """# Settings

Made from `src/skep/config.py` by `make docs`. Later places win: default, `skep.toml` (in the working folder, or the
file named by `SKEP_CONFIG` or `--config`), variable, flag. `skep config` prints every value and where it came from;
`examples/skep.toml` is a file to start from. In variables and flags a list is written `one,two` or `["one", "two"]`.

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
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in exits.MEANING.items())
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


if __name__ == "__main__":
    write(Path())
