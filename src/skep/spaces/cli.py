"""`skep space …`: put, take and look at tuples. What is printed is JSON, an array for each tuple."""

import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from skep.base.errors import BadInput, NotFound
from skep.client import Client
from skep.client.spaces import Space
from skep.interfaces import terminal
from skep.interfaces.terminal import clean, print_all, print_json, sure, tell
from skep.spaces.api import Field, Fields, Typed
from skep.status.cli import span

_INT = re.compile(r"[+-]?[0-9]{1,40}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")
_TYPES = {":str": Typed("str"), ":int": Typed("int"), ":float": Typed("float"), ":bool": Typed("bool")}
_TYPES[":any"] = Typed("any")


def listing(client: Client, args: Namespace) -> None:
    head = ("NAME", "TUPLES", "TAKEN")
    print_all(args, client.spaces.list(), head, lambda one, _: (one.name, str(one.size), str(one.taken)))


def put(client: Client, args: Namespace) -> None:
    seq = client.space(args.space).put(*(field(word) for word in args.fields), id=args.id)
    tell(args, {"seq": seq}, str(seq))


def get(client: Client, args: Namespace) -> int:
    """What is printed is acknowledged: a reader that is gone by then has not taken it."""
    template = [part(word) for word in args.fields]
    space = client.space(args.space)
    if args.all:
        return _print(space.get_all(*template))
    try:
        with space.get(*template, timeout=_seconds(args.wait)) as taken:
            return _print([taken.fields])
    except NotFound:
        return terminal.NOTHING_FOUND


def query(client: Client, args: Namespace) -> int:
    template = [part(word) for word in args.fields]
    space = client.space(args.space)
    return _print(space.query_all(*template) if args.all else _one(space, template, args.wait))


def _one(space: Space, template: Sequence[Any], wait: str | None) -> list[Fields]:
    try:
        return [space.query(*template, timeout=_seconds(wait))]
    except NotFound:
        return []


def drop(client: Client, args: Namespace) -> None:
    size = client.spaces.show(args.space).size
    sure(args, f"remove the space {args.space} with {size} tuples?")
    client.spaces.drop(args.space)
    print(f"removed {clean(args.space)}")


def _print(found: Iterable[Fields]) -> int:
    code = terminal.NOTHING_FOUND
    for fields in found:
        print_json(fields)
        code = terminal.OK
    sys.stdout.flush()
    return code


def _seconds(wait: str | None) -> float | None:
    return 0.0 if wait is None else None if wait == "ever" else span(wait)


def field(word: str) -> Field:
    """`true` and `false`, numbers, else text; `str:` before what would otherwise be something else."""
    if word.startswith("str:"):
        return word[4:]
    if word in ("true", "false"):
        return word == "true"
    if _INT.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def part(word: str) -> Field | Typed:
    """A field, or `:int` for every value of a type."""
    if word.startswith(":"):
        if word not in _TYPES:
            raise BadInput(f"{word!r} is no type", hint=f"one of {', '.join(_TYPES)}; 'str:{word}' for the text")
        return _TYPES[word]
    return field(word)
