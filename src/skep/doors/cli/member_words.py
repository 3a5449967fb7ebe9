"""The words of `skep worker` and `skep ca`."""

from skep.doors.cli.parser import Command, json_option, settings_options


def fill_worker(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB")
    verbs.add_parser("list", help="all workers", fill=json_option, run="worker:listing")
    verbs.add_parser("show", help="one worker", fill=_fill_show, run="worker:show")
    verbs.add_parser("select", help="try a selector", fill=_fill_select, run="worker:select")
    verbs.add_parser("drain", help="give what it holds to others", fill=_worker, run="worker:drain")
    verbs.add_parser("resume", help="drain it no further", fill=_worker, run="worker:resume")
    verbs.add_parser("forget", help="it will not come back", fill=_worker, run="worker:forget")
    verbs.add_parser("token", help="make a token to join with; shown once", fill=_fill_token, run="member:token")
    verbs.add_parser("tokens", help="all tokens to join with", fill=json_option, run="member:tokens")
    verbs.add_parser("revoke", help="end a token, and whoever joined with it", fill=_fill_revoke, run="member:revoke")
    verbs.add_parser("join", help="remember the line to join with", fill=_fill_join, run="member:join")
    shown = ("data", "roles", "name", "coordinators", "token_file", "tls_ca", "labels", "capacity", "task_commands")
    settings_options(parser, shown)


def fill_ca(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser(
        "init", help="make a CA, and a certificate of it for this coordinator", fill=_fill_init, run="ca:init"
    )
    verbs.add_parser("issue", help="a certificate for another coordinator", fill=_fill_issue, run="ca:issue")


def _worker(parser: Command) -> None:
    parser.add_argument("worker", metavar="WORKER", help="id or name")


def _fill_show(parser: Command) -> None:
    _worker(parser)
    json_option(parser)


def _fill_select(parser: Command) -> None:
    parser.add_argument("selector", metavar="EXPR", help='such as: os == "linux" and memory >= 8GB and tools has "gcc"')
    json_option(parser)


def _fill_token(parser: Command) -> None:
    parser.add_argument("--name", default="", help="whose it is, for your own lists")
    parser.add_argument(
        "--role", action="append", choices=("worker", "manager"), help="what it may join as (worker); may be repeated"
    )
    parser.add_argument("--shared", action="store_true", help="for many that are made alike, such as containers")
    parser.add_argument("--expires", metavar="TIME", help="after 90s, 30m, 12h, 30d or 2w; never if not given")
    parser.add_argument("--join", action="store_true", help="print the whole line for `skep worker join`")
    json_option(parser)


def _fill_revoke(parser: Command) -> None:
    parser.add_argument("id", metavar="ID", help="as `skep worker tokens` shows it")


def _fill_join(parser: Command) -> None:
    parser.add_argument("line", metavar="LINE", help="of `skep worker token --join`; - for standard input")
    settings_options(parser, ("data",), only=True)


def _fill_init(parser: Command) -> None:
    about = "name or address that members dial, besides this machine's name and loopback"
    parser.add_argument("hosts", metavar="HOST", nargs="*", help=about)
    settings_options(parser, ("data",), only=True)


def _fill_issue(parser: Command) -> None:
    parser.add_argument("hosts", metavar="HOST", nargs="+", help="name or address that members dial")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="link.crt, link.key and ca.crt go there")
    settings_options(parser, ("data",), only=True)
