"""What a command says: tables and lines for people, a line of JSON each for programs."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from skep.doors.cli.terminal import clean, table, width

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
