"""The words of `skep credential`, declared when it was chosen."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser(
        "set", help="set one; the secret is read from standard input", fill=_fill_set, run="credential:put"
    )
    verbs.add_parser("list", help="all credentials, without secrets", fill=json_option, run="credential:listing")
    verbs.add_parser("remove", help="forget one", fill=_fill_remove, run="credential:remove")


def _fill_set(parser: Command) -> None:
    parser.add_argument("name", metavar="NAME", help="what it is called here")
    parser.add_argument("--host", required=True, help="HOST or HOST:PORT; it is shown to no other")
    parser.add_argument("--source", metavar="REF", default="", help="only for this source")
    parser.add_argument("--user", default="x-access-token", help="user name beside the secret (x-access-token)")
    parser.add_argument("--public", action="store_true", help="use it for public sources too")
    uses = parser.add_mutually_exclusive_group()
    proof = "it proves webhooks instead of being shown to the host"
    uses.add_argument("--hook", action="store_const", const="hook", dest="use", help=proof)
    listing = "it is shown when the host is asked for its repositories, for a list"
    uses.add_argument("--api", action="store_const", const="api", dest="use", help=listing)
    parser.set_defaults(use="fetch")
    json_option(parser)


def _fill_remove(parser: Command) -> None:
    parser.add_argument("name", metavar="NAME", help="as `skep credential list` shows it")
