"""The words of `skep search` and `skep searches`."""

from collections.abc import Sequence

from skep.doors.cli.parser import Command, json_option

_GUARD = "\0"


def guarded(argv: Sequence[str]) -> list[str]:
    """`-path:test` is a word of a query, not an option: it is marked, so that argparse leaves it alone."""
    if not argv or argv[0] not in ("search", "searches"):
        return list(argv)
    return [_GUARD + word if word[:1] == "-" and word[1:2] != "-" and ":" in word else word for word in argv]


def fill(parser: Command) -> None:
    _query(parser)
    parser.add_argument("--lines", metavar="N", type=int, default=50, help="matching lines at most (50)")
    parser.add_argument("-C", "--context", metavar="N", type=int, default=0, help="lines before and after each (0)")
    parser.add_argument("--files", action="store_true", help="only which files, as type:file does")
    parser.add_argument("--count", action="store_true", help="only how many lines and files match")
    parser.add_argument("--explain", action="store_true", help="say what each score is made of")
    parser.add_argument("--complete", action="store_true", help="what may follow the query; for shells")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal")
    json_option(parser)


def fill_searches(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("save", help="keep a query; what newly matches is told", fill=_fill_save, run="searches:save")
    verbs.add_parser("list", help="those that are kept", fill=json_option, run="searches:listing")
    verbs.add_parser("remove", help="no longer", fill=_name, run="searches:remove")


def _query(parser: Command) -> None:
    action = parser.add_argument("query", metavar="QUERY", nargs="+", type=_word, help="words are joined by blanks")
    # how shtab is told who completes it; see completion.py
    action.complete = {"bash": "_skep_query", "zsh": "_skep_query"}  # type: ignore[attr-defined]


def _word(word: str) -> str:
    return word.removeprefix(_GUARD)


def _name(parser: Command) -> None:
    parser.add_argument("name", metavar="NAME", help="of the search")


def _fill_save(parser: Command) -> None:
    _name(parser)
    _query(parser)
    parser.add_argument("--topic", metavar="TOPIC", default="", help="where it is told (skep.searches)")
    parser.add_argument("--first", action="store_true", help="tell also what matches when a source is new")
    json_option(parser)
