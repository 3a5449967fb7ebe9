"""The words of `skep source …`, and of what else is about one source."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
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
        help="force_push, refs, branches, poll_min, poll_max or priority; without VALUE as others; may be repeated",
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


def fill_fetch_url(parser: Command) -> None:
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


def fill_report(parser: Command) -> None:
    _ref(parser)
    parser.add_argument("--commit", metavar="ID", default="", help="of this commit instead of the newest")
    json_option(parser)
