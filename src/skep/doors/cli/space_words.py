"""The words of `skep space …`."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("list", help="all spaces", fill=json_option, run="space:listing")
    verbs.add_parser("put", help="put a tuple", fill=_put, run="space:put")
    verbs.add_parser("get", help="take a tuple and print it", fill=_find, run="space:get")
    verbs.add_parser("query", help="print a tuple and leave it there", fill=_find, run="space:query")
    verbs.add_parser("drop", help="remove a space and all in it", fill=_drop, run="space:drop")


def _put(parser: Command) -> None:
    parser.add_argument("space", metavar="SPACE", help="name; the first put makes it")
    parser.add_argument("fields", metavar="FIELD", nargs="+", help="job, 1, 1.5, true; str:1 for the text 1")
    parser.add_argument("--id", default="", help="with the id of a tuple that is there, this is that tuple")
    json_option(parser)


def _find(parser: Command) -> None:
    parser.add_argument("space", metavar="SPACE", help="name")
    parser.add_argument(
        "fields", metavar="FIELD", nargs="+", help="a value as for put, or :str, :int, :float, :bool, :any for a type"
    )
    parser.add_argument("--wait", metavar="TIME", help="wait so long for a match, such as 30s; for ever: 'ever'")
    parser.add_argument("--all", action="store_true", help="every match, without waiting")


def _drop(parser: Command) -> None:
    parser.add_argument("space", metavar="SPACE", help="name")
    parser.add_argument("--yes", action="store_true", help="do not ask")
