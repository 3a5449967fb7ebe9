"""The words of `skep result`."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("list", help="results, newest first", fill=_fill_list, run="result:listing")
    verbs.add_parser("show", help="one result", fill=_fill_show, run="result:show")
    verbs.add_parser("record", help="results in a file, for a task", fill=_fill_record, run="result:record")
    verbs.add_parser("series", help="the curves there are", fill=_fill_series, run="result:series")
    verbs.add_parser("plot", help="curves, drawn in the terminal", fill=_fill_plot, run="result:show_plot")
    verbs.add_parser("aggregate", help="count, mean, median, …", fill=_fill_aggregate, run="result:aggregate")
    verbs.add_parser("export", help="everything that matches, to stdout", fill=_fill_export, run="result:export")


def _where(parser: Command) -> None:
    parser.add_argument(
        "where",
        metavar="FILTER",
        nargs="*",
        help="such as metric=time, 'group~parse*', 'value>=1.5' or 'ref=main|next'",
    )


def _fill_list(parser: Command) -> None:
    _where(parser)
    parser.add_argument("--order", metavar="FIELD", default="-at", help="smallest first; -FIELD: largest first (-at)")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="how many at most (100)")
    json_option(parser)


def _fill_show(parser: Command) -> None:
    parser.add_argument("id", metavar="RESULT", help="id of a result")
    json_option(parser)


def _fill_record(parser: Command) -> None:
    parser.add_argument("task", metavar="TASK", help="id of the task they are of")
    parser.add_argument(
        "file", metavar="FILE", help="JSON lines, or what pytest-benchmark, asv, hyperfine or go wrote; - for stdin"
    )
    json_option(parser)


def _fill_series(parser: Command) -> None:
    _where(parser)
    json_option(parser)


def _fill_plot(parser: Command) -> None:
    _where(parser)
    parser.add_argument("--limit", metavar="N", type=int, default=4, help="how many curves at most (4)")
    parser.add_argument("--rows", metavar="N", type=int, default=8, help="how high each of them is (8)")


def _fill_aggregate(parser: Command) -> None:
    _where(parser)
    parser.add_argument("--by", metavar="FIELDS", default="", help="divided by commas, such as group,machine")
    json_option(parser)


def _fill_export(parser: Command) -> None:
    _where(parser)
    parser.add_argument("--fields", metavar="FIELDS", default="", help="only these, divided by commas")
    parser.add_argument("--order", metavar="FIELD", default="at", help="smallest first; -FIELD: largest first (at)")
    parser.add_argument("--format", choices=("jsonl", "csv"), default="jsonl", help="JSON lines, or CSV")
