"""The lines of a hit with what stands around them, each line once. Pure; pages and the command line show the same."""

from collections.abc import Iterable

import msgspec

from skep.model.search import Line


class Row(msgspec.Struct, frozen=True):
    number: int
    text: str
    #: None: context
    line: Line | None = None


def excerpts(lines: Iterable[Line]) -> list[list[Row]]:
    """In the order of the file, cut where lines are left out between them."""
    rows: dict[int, Row] = {}
    for line in lines:
        first = line.number - len(line.before)
        for number, text in [*enumerate(line.before, first), *enumerate(line.after, line.number + 1)]:
            rows.setdefault(number, Row(number, text))
        rows[line.number] = Row(line.number, line.text, line)
    groups: list[list[Row]] = []
    for number in sorted(rows):
        if not groups or groups[-1][-1].number != number - 1:
            groups.append([])
        groups[-1].append(rows[number])
    return groups
