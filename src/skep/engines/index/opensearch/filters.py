"""The small parts that queries of a server are made of."""

from collections.abc import Sequence
from typing import Any

Filter = dict[str, Any]
NOTHING: Filter = {"match_none": {}}
#: values a server takes in one clause are 65536
_MOST_VALUES = 60_000


def any_of(parts: list[Filter]) -> Filter:
    return NOTHING if not parts else parts[0] if len(parts) == 1 else {"bool": {"should": parts}}


def one_of(field: str, values: Sequence[str] | Sequence[int]) -> Filter:
    pieces = [values[at : at + _MOST_VALUES] for at in range(0, len(values), _MOST_VALUES)]
    return any_of([{"terms": {field: piece}} for piece in pieces])
