"""The words of the command line. A command's own arguments are declared only when it was chosen."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

#: what declares a command's arguments, or `module:function` below skep.doors.cli
Fill = Callable[["Command"], None] | str


class Command(argparse.ArgumentParser):
    """`run` is `module:function` below skep.doors.cli."""

    def __init__(self, *, fill: Fill | None = None, run: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._fill = fill
        if run:
            self.set_defaults(run=run)

    def fill(self) -> None:
        fill, self._fill = self._fill, None
        if isinstance(fill, str):
            module, _, function = fill.partition(":")
            fill = getattr(import_module(f"skep.doors.cli.{module}"), function)
        if callable(fill):
            fill(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.fill()
        return super().parse_known_args(args, namespace)


class FullCommand(Command):
    """Declares everything at once: for completion and documentation."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fill()


def build(kind: type[Command] = Command) -> Command:
    return kind(
        prog="skep",
        description="Mirrors git repositories, keeps them fresh and searches them.",
        epilog="SKEP_URL and SKEP_TOKEN say which server is asked; see docs/cli.md for exit codes.",
        fill=_fill_root,
    )


#: `worker` has verbs besides
_ROLES = {
    "coordinator": "start a coordinator alone, for a fleet of machines",
    "aggregator": "start an aggregator alone",
    "manager": "start a manager alone",
}


def _fill_root(parser: Command) -> None:
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("up", help="start Skep on this machine", fill=_fill_up, run="server:up")
    for role, about in _ROLES.items():
        commands.add_parser(role, help=about, fill=_fill_role, run=f"server:{role}")
    commands.add_parser("source", help="add, list and change what is mirrored", fill="source_words:fill")
    commands.add_parser(
        "fetch",
        help="look at a URL now, and add it if need be",
        fill="source_words:fill_fetch_url",
        run="source:fetch_url",
    )
    commands.add_parser("list", help="follow lists of sources", fill="lists:fill")
    commands.add_parser("search", help="search all sources", fill="search_words:fill", run="search:search")
    commands.add_parser("report", help="what is in a source", fill="source_words:fill_report", run="report:report")
    commands.add_parser("searches", help="searches that are kept, and told of", fill="search_words:fill_searches")
    commands.add_parser("status", help="what the server holds and does", fill=json_option, run="admin:status")
    commands.add_parser("config", help="every setting and where it came from", fill=_fill_config, run="settings:show")
    commands.add_parser("token", help="create, list and revoke tokens", fill="token_words:fill")
    commands.add_parser("audit", help="who changed what", fill="token_words:fill_audit", run="admin:audit")
    commands.add_parser("credential", help="secrets for upstreams and webhooks", fill="credential_words:fill")
    commands.add_parser("dataone", help="harvest DataONE's Member Nodes", fill="dataone_words:fill")
    commands.add_parser("topic", help="publish and read messages", fill="topic_words:fill")
    commands.add_parser("space", help="put, take and look at tuples", fill="space_words:fill")
    commands.add_parser("context", help="submit tasks that belong together", fill="task_words:fill_context")
    commands.add_parser("task", help="run commands on workers", fill="task_words:fill_task")
    commands.add_parser("package", help="programs for tasks, kept for all workers", fill="package_words:fill")
    commands.add_parser("result", help="what tasks measured", fill="result_words:fill")
    commands.add_parser(
        "worker",
        help="start a worker alone, or look after workers",
        fill="member_words:fill_worker",
        run="server:worker",
    )
    commands.add_parser("ca", help="certificates of a fleet's own", fill="member_words:fill_ca")
    commands.add_parser(
        "autoscale", help="as many workers as the work needs", fill="autoscale:fill", run="autoscale:run"
    )
    commands.add_parser("rule", help="what is done on every change, or by the clock", fill="rule:fill")
    commands.add_parser("benchmark", help="what each change did to the numbers", fill="benchmark:fill")
    commands.add_parser(
        "simulate", help="how fresh mirrors would be at which load", fill="simulate:fill", run="simulate:run"
    )
    commands.add_parser("log", help="what every process says", fill=_fill_log, run="log:show")
    commands.add_parser("completion", help="completion for your shell", fill=_fill_completion, run="completion:show")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from skep import __version__

        print(f"skep {__version__}")
        parser.exit()


def json_option(parser: Command) -> None:
    parser.add_argument("--json", action="store_true", help="for programs: JSON, one object per line")


def settings_options(parser: Command, shown: Sequence[str] = (), *, only: bool = False) -> None:
    """All settings as options; `shown` are those that help explains, and with `only` there are no others."""
    from skep.config_load import FIELDS, about, expected

    parser.add_argument("--config", metavar="FILE", help="settings file (SKEP_CONFIG, else ./skep.toml if it exists)")
    for name in shown if only else FIELDS:
        text = f"{about(name)} ({expected(name)})".replace("%", "%%")
        hidden = bool(shown) and name not in shown
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, metavar="VALUE", dest=f"set_{name}", help=argparse.SUPPRESS if hidden else text)
    if shown and not only:
        parser.epilog = "Every other setting is an option too, as of `skep up`."


def _fill_up(parser: Command) -> None:
    parser.add_argument("--add", metavar="URL", action="append", default=[], help="mirror this too, if it is not yet")
    settings_options(parser)


def _fill_role(parser: Command) -> None:
    settings_options(
        parser, ("data", "listen", "roles", "name", "coordinators", "token_file", "link_listen", "database")
    )


def _fill_config(parser: Command) -> None:
    json_option(parser)
    parser.add_argument("--example", action="store_true", help="print a skep.toml with every default")
    settings_options(parser)


def _fill_log(parser: Command) -> None:
    parser.add_argument("--follow", action="store_true", help="go on with what comes")
    parser.add_argument("--lines", metavar="N", type=int, default=100, help="begin with the newest N (100)")
    levels = ("debug", "info", "warning", "error", "critical")
    parser.add_argument("--level", choices=levels, default="debug", help="this level and worse")
    parser.add_argument("--process", metavar="ID", default="", help="only of this process, as `skep status` names it")
    parser.add_argument("--about", metavar="ID", default="", help="only about this source or task")
    json_option(parser)


def _fill_completion(parser: Command) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="write the output where it looks")
