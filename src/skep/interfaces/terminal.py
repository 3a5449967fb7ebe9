"""What people see: tables that fit, readable times, a progress bar. Nothing from outside reaches a terminal raw."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TextIO, TypeVar

import msgspec

from skep.base.errors import BadInput, NeedsToken, NotAllowed, NotFound, SkepError, Unavailable

# Exit codes: what a script may rely on. docs/cli.md is made from this table.

OK = 0
NOTHING_FOUND = 1
TASK_FAILED = 1
BAD_INPUT = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
UNAVAILABLE = 5
FAILED_SOURCE = 6
REFUSED = 7
INTERRUPTED = 130

MEANING = {
    OK: "done; a search found something",
    NOTHING_FOUND: "a search, or a template in a space, found nothing; what was waited for has failed",
    BAD_INPUT: "the command line, a setting, a URL, a query or a file of tasks is wrong",
    NOT_FOUND: "no such source, token, topic, space, context or task",
    NOT_ALLOWED: "a token is needed, or the one given may not do this",
    UNAVAILABLE: "the server cannot be reached, or is too busy",
    FAILED_SOURCE: "`--wait`: the source cannot be fetched at the moment",
    REFUSED: "the server could not do it: a conflict, a full disk, damaged data",
    INTERRUPTED: "stopped by Ctrl-C",
}

_BY_ERROR: tuple[tuple[type[SkepError], int], ...] = (
    (BadInput, BAD_INPUT),
    (NotFound, NOT_FOUND),
    (NeedsToken, NOT_ALLOWED),
    (NotAllowed, NOT_ALLOWED),
    (Unavailable, UNAVAILABLE),
)


def code_of(error: SkepError) -> int:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), REFUSED)


# A curve in the terminal: each character is a cell of two by four dots. Pure.

#: the bits of a braille character's dots, by row and column
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def plot(values: Sequence[float], columns: int, rows: int) -> list[str]:
    """Lines of at most `columns` characters; the lowest and the highest value are on the edges. Where there are more
    values than places, several share one: their median."""
    places = min(len(values), 2 * columns)
    shown = [
        median(values[n * len(values) // places : max((n + 1) * len(values) // places, n * len(values) // places + 1)])
        for n in range(places)
    ]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    cells = [[_BLANK] * ((places + 1) // 2) for _ in range(rows)]
    before = None
    for x, value in enumerate(shown):
        # one that never moves lies in the middle
        y = round((high - value) / (high - low) * (4 * rows - 1)) if high > low else 2 * rows
        start = y if before is None else before + (y > before) - (y < before)
        for dot in range(min(start, y), max(start, y) + 1):
            cells[dot // 4][x // 2] |= _DOTS[dot % 4][x % 2]
        before = y
    return ["".join(map(chr, line)) for line in cells]


_REORDER = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029]
#: a repository must not steer a terminal: control characters become pictures, reordering ones a mark
_UNSAFE = {code: 0x2400 + code for code in range(32) if code != 9}
_UNSAFE |= dict.fromkeys([*range(0x7F, 0xA0), *_REORDER], 0xFFFD)


def clean(text: str) -> str:
    """Character by character, so that places in the text stay where they are."""
    return text.translate(_UNSAFE)


def sure(args: Namespace, question: str) -> None:
    """Asks whoever is there to be asked, unless they said `--yes`."""
    if not args.yes and sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise BadInput("nothing was removed")


def colourful(choice: str, stream: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def width(stream: TextIO) -> int | None:
    """None where nobody looks: then nothing is cut."""
    if not stream.isatty():
        return None
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns) or 80
    except (OSError, ValueError):
        return 80


def table(head: Sequence[str], rows: Sequence[Sequence[str]], room: int | None) -> str:
    lines = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    while room and sum(widths) + 2 * (len(widths) - 1) > room and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    return "\n".join("  ".join(_fit(*pair) for pair in zip(line, widths, strict=True)).rstrip() for line in lines)


def _fit(cell: str, room: int) -> str:
    return cell.ljust(room) if len(cell) <= room else cell[: room - 1] + "…"


def ago(then: float | None, now: float) -> str:
    if then is None:
        return "never"
    seconds = abs(now - then)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            span = f"{int(seconds // size)} {unit}"
            return f"{span} ago" if then <= now else f"in {span}"
    return "now"


class Bar:
    """Progress on stderr: redrawn in place on a terminal, a line per new stage elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty()
        self._last = ""

    def show(self, name: str, stage: str, done: int, total: int) -> None:
        name = clean(name)
        if self.live:
            room = width(self._stream) or 80
            self._write("\r\x1b[K" + f"{name}: {stage} {_drawn(done, total)}"[: room - 1])
        elif (line := f"{name}: {stage}") != self._last:
            self._last = line
            self._write(line + "\n")

    def done(self) -> None:
        if self.live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _drawn(done: int, total: int, room: int = 24) -> str:
    if total <= 0:
        return f"{done}" if done else "…"
    share = min(done / total, 1.0)
    filled = int(share * room)
    return f"[{'#' * filled}{'.' * (room - filled)}] {share:4.0%}"


# What a command says: tables and lines for people, a line of JSON each for programs.

T = TypeVar("T")


def print_json(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


def in_json(args: Namespace, *answers: object) -> bool:
    """True: that is how they were asked for, and they are printed."""
    for one in answers if args.json else ():
        print_json(one)
    return bool(args.json)


def tell(args: Namespace, answer: object, text: str) -> None:
    if not in_json(args, answer):
        print(clean(text), flush=True)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(table(head, rows, width(sys.stdout)))


def print_facts(facts: Mapping[str, str], room: int, indent: str = "") -> None:
    """What is empty is left out."""
    print("\n".join(f"{indent}{key:<{room}}{clean(text)}" for key, text in facts.items() if text))


def print_all(
    args: Namespace,
    found: Iterable[T],
    head: Sequence[str],
    row: Callable[[T, float], Sequence[str]],
    none: str = "",
) -> None:
    """`row` is told what time it is. `none`: what to say to people where there is nothing."""
    if args.json:
        for one in found:
            print_json(one)
        return
    now = time.time()
    rows = [row(one, now) for one in found]
    if rows or not none:
        print_table(head, rows)
    else:
        print(none, file=sys.stderr)
