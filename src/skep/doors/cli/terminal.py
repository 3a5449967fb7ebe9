"""What people see: tables that fit, readable times, a progress bar. Nothing from outside reaches a terminal raw."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TextIO

from skep.errors import BadInput

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
