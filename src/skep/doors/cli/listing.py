"""What there is of a noun: a table for people, a line of JSON each for programs."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from skep.doors.cli import exits
from skep.doors.cli.terminal import table, width

T = TypeVar("T")


def print_json(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


def print_all(
    found: Iterable[T], head: Sequence[str], row: Callable[[T, float], Sequence[str]], *, json: bool, none: str = ""
) -> int:
    """`row` is told what time it is. `none`: what to say to people where there is nothing."""
    if json:
        for one in found:
            print_json(one)
        return exits.OK
    now = time.time()
    rows = [row(one, now) for one in found]
    if rows or not none:
        print(table(head, rows, width(sys.stdout)))
    else:
        print(none, file=sys.stderr)
    return exits.OK
