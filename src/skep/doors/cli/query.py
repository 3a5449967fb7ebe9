"""The words of a query on the command line."""

import re
from collections.abc import Sequence

from skep.doors.cli.parser import Command

_GUARD = "\0"
_OPTION = re.compile(r"-(-.*|h|C\d*)?")


def guarded(argv: Sequence[str]) -> list[str]:
    """`-test` is a word of a query, not an option: it is marked, so that argparse leaves it alone."""
    if not argv or argv[0] not in ("search", "searches"):
        return list(argv)
    return [_GUARD + word if word[:1] == "-" and not _OPTION.fullmatch(word) else word for word in argv]


def query(parser: Command) -> None:
    action = parser.add_argument("query", metavar="QUERY", nargs="+", type=_word, help="words are joined by blanks")
    # how shtab is told who completes it; see completion.py
    action.complete = {"bash": "_skep_query", "zsh": "_skep_query"}  # type: ignore[attr-defined]


def _word(word: str) -> str:
    return word.removeprefix(_GUARD)
