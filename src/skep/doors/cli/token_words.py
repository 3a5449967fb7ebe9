"""The words of `skep token …` and `skep audit`."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
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


def fill_audit(parser: Command) -> None:
    parser.add_argument(
        "about", metavar="ABOUT", nargs="?", default="", help="a verb, a caller, or part of what was changed"
    )
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="how many at most (100)")
    json_option(parser)
