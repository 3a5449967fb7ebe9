"""How the command line is declared: a row for each command. What a row declares is done only when it was chosen."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

#: adds arguments to a command, or verbs
Declare = Callable[[Any], object]
#: verbs whose names Python has given away
_FUNCTIONS = {"list": "listing", "set": "put"}


class Row(NamedTuple):
    """`run` is `module:function` below skep.doors.cli; who `asks` a server is given the client."""

    name: str
    about: str
    declares: tuple[Declare, ...]
    run: str
    asks: bool = True

    def takes(self, *declares: Declare) -> "Row":
        return self._replace(declares=declares)


class Command(argparse.ArgumentParser):
    def __init__(self, *, declares: Sequence[Declare] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._declares = declares

    def declare(self) -> None:
        declares, self._declares = self._declares, ()
        for one in declares:
            one(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.declare()
        return super().parse_known_args(args, namespace)


class FullCommand(Command):
    """Declares everything at once: for completion and documentation."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.declare()


def build(kind: type[Command] = Command) -> Command:
    from skep.cli.commands import COMMANDS

    return kind(
        prog="skep",
        description="Mirrors git repositories, keeps them fresh and searches them.",
        epilog="SKEP_URL and SKEP_TOKEN say which server is asked; see docs/cli.md for exit codes.",
        declares=(_version, partial(_below, rows=COMMANDS, metavar="COMMAND", required=True)),
    )


def noun(name: str, about: str, *rows: Row, module: str = "", also: Sequence[Declare] = (), run: str = "") -> Row:
    """Its verbs are functions of the module that is called like it. With `run` it is a command by itself too."""
    verbs = [
        row if row.run else row._replace(run=f"{module or name}:{_FUNCTIONS.get(row.name, row.name)}") for row in rows
    ]
    return Row(name, about, (partial(_below, rows=verbs, metavar="VERB", required=not run), *also), run, asks=False)


def verb(name: str, about: str, run: str = "") -> Row:
    return Row(name, about, (), run)


def here(name: str, about: str, run: str = "") -> Row:
    """Done on this machine, by itself."""
    return Row(name, about, (), run, asks=False)


def _below(parser: Command, rows: Sequence[Row], metavar: str, required: bool) -> None:
    below = parser.add_subparsers(metavar=metavar, required=required)
    for row in rows:
        command = below.add_parser(row.name, help=row.about, declares=row.declares)
        if row.run:
            command.set_defaults(run=row.run, asks=row.asks)


def arg(form: str, about: str, **more: Any) -> Declare:
    """`REF` stands by its place (`REF?`, `REF*`, `REF+`: how many), `--limit N` has a value, `--yes` has none.
    N is a whole number; `more` is argparse's."""
    *names, last = form.split()
    bare = last.rstrip("?*+")
    how: dict[str, Any] = {"metavar": bare}
    if last.startswith("-"):
        names, how = [*names, last], {} if "choices" in more else {"action": "store_true"}
    elif not names:
        names = [more.pop("dest", bare.lower())]
        how |= {"nargs": last[-1]} if last != bare else {}
    how |= {"type": int} if bare == "N" else {}
    return lambda parser: parser.add_argument(*names, help=about, **how | more)


def const(form: str, dest: str, value: object, about: str) -> Declare:
    """An option that stands for a value; there are others for the same."""
    return arg(form, about, action="store_const", const=value, dest=dest)


def either(*declares: Declare) -> Declare:
    """One of them at most."""

    def declare(parser: Command) -> None:
        group = parser.add_mutually_exclusive_group()
        for one in declares:
            one(group)

    return declare


def settings(*shown: str, only: bool = False) -> Declare:
    """All settings as options; `shown` are those that help explains, and with `only` there are no others."""

    def declare(parser: Command) -> None:
        from skep.config.loading import FIELDS, about, expected

        arg("--config FILE", "settings file (SKEP_CONFIG, else ./skep.toml if it exists)")(parser)
        for name in shown if only else FIELDS:
            text = f"{about(name)} ({expected(name)})".replace("%", "%%")
            hidden = bool(shown) and name not in shown
            option = f"--{name.replace('_', '-')} VALUE"
            arg(option, argparse.SUPPRESS if hidden else text, dest=f"set_{name}")(parser)
        if shown and not only:
            parser.epilog = "Every other setting is an option too, as of `skep up`."

    return declare


def _version(parser: Command) -> None:
    parser.add_argument("--version", action=_Version)


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from skep import __version__

        print(f"skep {__version__}")
        parser.exit()
