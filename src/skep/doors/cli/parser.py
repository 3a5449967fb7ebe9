"""The words of the command line. A command's own arguments are declared only when it was chosen."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

Fill = Callable[["Command"], None]


class Command(argparse.ArgumentParser):
    """`run` is `module:function` below skep.doors.cli."""

    def __init__(self, *, fill: Fill | None = None, run: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._fill = fill
        if run:
            self.set_defaults(run=run)

    def fill(self) -> None:
        fill, self._fill = self._fill, None
        if fill:
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
    commands.add_parser("source", help="add, list and change what is mirrored", fill=_fill_source)
    commands.add_parser(
        "fetch", help="look at a URL now, and add it if need be", fill=_fill_fetch_url, run="source:fetch_url"
    )
    commands.add_parser("list", help="follow lists of sources", fill=_fill_lists)
    commands.add_parser("search", help="search all sources", fill=_fill_search, run="search:search")
    commands.add_parser("report", help="what is in a source", fill=_fill_report, run="report:report")
    commands.add_parser("searches", help="searches that are kept, and told of", fill=_fill_searches)
    commands.add_parser("status", help="what the server holds and does", fill=json_option, run="admin:status")
    commands.add_parser("config", help="every setting and where it came from", fill=_fill_config, run="settings:show")
    commands.add_parser("token", help="create, list and revoke tokens", fill=_fill_token)
    commands.add_parser("credential", help="secrets for upstreams and webhooks", fill=_fill_credential)
    commands.add_parser("dataone", help="harvest DataONE's Member Nodes", fill=_fill_dataone)
    commands.add_parser("topic", help="publish and read messages", fill=_fill_topic)
    commands.add_parser("space", help="put, take and look at tuples", fill=_fill_space)
    commands.add_parser("context", help="submit tasks that belong together", fill=_fill_context)
    commands.add_parser("task", help="run commands on workers", fill=_fill_task)
    commands.add_parser("package", help="programs for tasks, kept for all workers", fill=_fill_package)
    commands.add_parser("result", help="what tasks measured", fill=_fill_result)
    commands.add_parser(
        "worker", help="start a worker alone, or look after workers", fill=_fill_worker, run="server:worker"
    )
    commands.add_parser("ca", help="certificates of a fleet's own", fill=_fill_ca)
    commands.add_parser("rule", help="what is done on every change, or by the clock", fill=_fill_rule)
    commands.add_parser("benchmark", help="what each change did to the numbers", fill=_fill_benchmark)
    commands.add_parser(
        "simulate", help="how fresh mirrors would be at which load", fill=_fill_simulate, run="simulate:run"
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


def _fill_source(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("add", help="mirror a repository", fill=_fill_add, run="source:add")
    verbs.add_parser("list", help="all sources", fill=_fill_list, run="source:listing")
    verbs.add_parser("show", help="one source", fill=_fill_show, run="source:show")
    verbs.add_parser(
        "update", help="change URL, labels, settings or visibility", fill=_fill_update, run="source:update"
    )
    verbs.add_parser("fetch", help="look at the upstream now", fill=_fill_fetch, run="source:fetch")
    verbs.add_parser("accept", help="follow it into the loss it asks about", fill=_fill_fetch, run="source:accept")
    verbs.add_parser(
        "reindex", help="build its index anew, or with --all everybody's", fill=_fill_reindex, run="source:reindex"
    )
    verbs.add_parser("remove", help="forget a source and its mirror", fill=_fill_remove, run="source:remove")


def _ref(parser: Command) -> None:
    parser.add_argument("ref", metavar="REF", help="id, name (github.com/org/repo) or URL")


def _wait(parser: Command) -> None:
    parser.add_argument("--wait", action="store_true", help="return when its newest commit is searchable")


def _labels(parser: Command, help: str) -> None:
    parser.add_argument("--label", metavar="LABEL", action="append", help=help)


def _fill_add(parser: Command) -> None:
    parser.add_argument("url", metavar="URL", nargs="*", help="URL or path of a repository")
    parser.add_argument(
        "--file", metavar="FILE", help="add or update the URLs in this file, one in each line; - for stdin"
    )
    _wait(parser)
    _labels(parser, "give it this label; may be repeated")
    parser.add_argument("--private", action="store_true", help="seen only with the scope 'private'")
    parser.add_argument("--kind", default="git", help="git, or dataone for the base URL of a Member Node")
    json_option(parser)


def _fill_list(parser: Command) -> None:
    parser.add_argument("--state", help="only those in this state: new, cloning, current, failing, …")
    json_option(parser)


def _fill_show(parser: Command) -> None:
    _ref(parser)
    json_option(parser)


def _fill_update(parser: Command) -> None:
    _ref(parser)
    parser.add_argument("--url", help="the upstream moved here")
    _labels(parser, "these labels instead of its own; '' for none")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        help="force_push, refs, branches, poll_min or poll_max of it; without VALUE as others; may be repeated",
    )
    seen = parser.add_mutually_exclusive_group()
    seen.add_argument("--private", dest="visibility", action="store_const", const="private", help="hide it")
    seen.add_argument(
        "--public", dest="visibility", action="store_const", const="public", help="show it to all readers"
    )
    json_option(parser)


def _fill_fetch(parser: Command) -> None:
    _ref(parser)
    _fetch_options(parser)


def _fill_fetch_url(parser: Command) -> None:
    parser.add_argument("url", metavar="URL", help="URL or path of a repository")
    parser.add_argument("--private", action="store_true", help="if it is new: seen only with the scope 'private'")
    _fetch_options(parser)


def _fetch_options(parser: Command) -> None:
    _wait(parser)
    parser.add_argument("--commit", metavar="ID", default="", help="wait until this commit is searchable")
    json_option(parser)


def _fill_reindex(parser: Command) -> None:
    parser.add_argument("ref", metavar="REF", nargs="?", help="id, name (github.com/org/repo) or URL")
    parser.add_argument("--all", action="store_true", help="every source: the whole index from the mirrors")
    json_option(parser)


def _fill_remove(parser: Command) -> None:
    _ref(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _fill_search(parser: Command) -> None:
    from skep.doors.cli.search_words import fill

    fill(parser)


def _fill_dataone(parser: Command) -> None:
    from skep.doors.cli.dataone_words import fill

    fill(parser)


def _fill_searches(parser: Command) -> None:
    from skep.doors.cli.search_words import fill_searches

    fill_searches(parser)


def _fill_report(parser: Command) -> None:
    _ref(parser)
    parser.add_argument("--commit", metavar="ID", default="", help="of this commit instead of the newest")
    json_option(parser)


def _fill_token(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("create", help="make a token; it is shown once", fill=_fill_token_create, run="admin:token_create")
    verbs.add_parser("list", help="all tokens", fill=json_option, run="admin:token_list")
    verbs.add_parser("revoke", help="end a token", fill=_fill_token_revoke, run="admin:token_revoke")


def _fill_token_create(parser: Command) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help="who will use it")
    scopes = ("read", "write", "private", "admin")
    parser.add_argument("--scope", action="append", required=True, choices=scopes, help="may be repeated")
    parser.add_argument("--expires", metavar="TIME", help="after 90s, 30m, 12h, 30d or 2w; never if not given")
    json_option(parser)


def _fill_token_revoke(parser: Command) -> None:
    parser.add_argument("id", metavar="ID", help="as `skep token list` shows it")


def _fill_credential(parser: Command) -> None:
    from skep.doors.cli.credential_words import fill

    fill(parser)


def _fill_topic(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("create", help="make a topic", fill=_fill_topic_create, run="topic:create")
    verbs.add_parser("list", help="all topics", fill=json_option, run="topic:listing")
    verbs.add_parser("show", help="partitions and groups of a topic", fill=_fill_topic_show, run="topic:show")
    verbs.add_parser("publish", help="store messages", fill=_fill_topic_publish, run="topic:publish")
    verbs.add_parser("read", help="messages of a topic", fill=_fill_topic_read, run="topic:read")
    verbs.add_parser("follow", help="messages as they come", fill=_fill_topic_follow, run="topic:follow")
    verbs.add_parser("trim", help="forget old messages", fill=_fill_topic_trim, run="topic:trim")
    verbs.add_parser("lag", help="how far groups are behind", fill=_fill_topic_lag, run="topic:lag")


def _topic(parser: Command) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name, such as skep.changes")


def _partition(parser: Command) -> None:
    parser.add_argument("--partition", metavar="N", type=int, default=0, help="which partition (0)")


def _fill_topic_create(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--partitions", metavar="N", type=int, default=1, help="how many (1); it stays so")
    parser.add_argument("--retain", metavar="TIME", help="forget what is older than 90s, 30m, 12h, 30d or 2w")
    parser.add_argument("--retain-bytes", metavar="N", type=int, help="keep at most so many in each partition")
    json_option(parser)


def _fill_topic_show(parser: Command) -> None:
    _topic(parser)
    json_option(parser)


def _fill_topic_publish(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("message", metavar="MESSAGE", nargs="?", help="JSON or text; - for each line of standard input")
    parser.add_argument("--file", metavar="FILE", help="the message is the content of this file")
    parser.add_argument("--key", default="", help="messages with the same key keep their order")
    parser.add_argument("--partition", metavar="N", type=int, help="this partition, whatever the key")
    json_option(parser)


def _fill_topic_read(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="first message to read (0)")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="messages at most (100)")
    _partition(parser)
    parser.add_argument("--wait", metavar="TIME", help="at the end, wait so long for something new, such as 30s")
    json_option(parser)


def _fill_topic_follow(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--offset", metavar="N", type=int, help="first message to print; else only new ones")
    _partition(parser)
    json_option(parser)


def _fill_topic_trim(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--before", metavar="N", type=int, required=True, help="the first offset that is kept")
    _partition(parser)
    json_option(parser)


def _fill_topic_lag(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="only this one")
    json_option(parser)


def _fill_space(parser: Command) -> None:
    from skep.doors.cli.space_words import fill

    fill(parser)


def _fill_context(parser: Command) -> None:
    from skep.doors.cli import parser_tasks

    parser_tasks.fill_context(parser)


def _fill_task(parser: Command) -> None:
    from skep.doors.cli import parser_tasks

    parser_tasks.fill_task(parser)


def _fill_worker(parser: Command) -> None:
    from skep.doors.cli import member_words

    member_words.fill_worker(parser)


def _fill_ca(parser: Command) -> None:
    from skep.doors.cli import member_words

    member_words.fill_ca(parser)


def _fill_benchmark(parser: Command) -> None:
    from skep.doors.cli.benchmark import fill

    fill(parser)


def _fill_rule(parser: Command) -> None:
    from skep.doors.cli.rule import fill

    fill(parser)


def _fill_package(parser: Command) -> None:
    from skep.doors.cli.package_words import fill

    fill(parser)


def _fill_result(parser: Command) -> None:
    from skep.doors.cli.result_words import fill

    fill(parser)


def _fill_lists(parser: Command) -> None:
    from skep.doors.cli.lists import fill

    fill(parser)


def _fill_log(parser: Command) -> None:
    parser.add_argument("--follow", action="store_true", help="go on with what comes")
    parser.add_argument("--lines", metavar="N", type=int, default=100, help="begin with the newest N (100)")
    levels = ("debug", "info", "warning", "error", "critical")
    parser.add_argument("--level", choices=levels, default="debug", help="this level and worse")
    parser.add_argument("--process", metavar="ID", default="", help="only of this process, as `skep status` names it")
    parser.add_argument("--about", metavar="ID", default="", help="only about this source or task")
    json_option(parser)


def _fill_simulate(parser: Command) -> None:
    from skep.doors.cli.simulate import fill

    fill(parser)


def _fill_completion(parser: Command) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="write the output where it looks")
