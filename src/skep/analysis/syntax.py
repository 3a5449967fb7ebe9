"""What the syntax tree of a file tells: the names it defines, the measures of its functions, where its comments are.

A parser that meets what it does not understand goes on behind it, so half a file is better than none. Whoever calls
this with a stranger's file bounds its size and the processor time, and survives the process: the grammars are C.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from tree_sitter import Node, Parser, QueryCursor

from skep.analysis.grammars import GRAMMARS, load
from skep.engines.index.books import KINDS, Definition, name_number

_LONGEST_NAME = 1_000
_NO_PARAMETER = frozenset(
    {"comment", "line_comment", "block_comment", "keyword_separator", "positional_separator", "parameter_modifiers"}
)
Array = NDArray[np.int64]


class Function(msgspec.Struct, frozen=True, array_like=True):
    name: str
    line: int
    lines: int
    parameters: int
    assignments: int
    branches: int
    conditions: int
    #: cyclomatic
    complexity: int

    @property
    def score(self) -> float:
        """The length of the vector of assignments, branches and conditions."""
        return round(math.hypot(self.assignments, self.branches, self.conditions), 2)


class Syntax(NamedTuple):
    definitions: list[Definition]
    functions: list[Function]
    #: start and end of each, in bytes
    comments: Array


def grammar_of(language: str, path: bytes) -> str | None:
    if language == "TypeScript" and path.lower().endswith(b".tsx"):
        return "TSX"
    return language if language in GRAMMARS else None


def read_syntax(grammar: str, content: bytes) -> Syntax:
    language, query = load(grammar)
    tree = Parser(language).parse(content)
    found = QueryCursor(query).captures(tree.root_node)
    ends_of_lines = np.flatnonzero(np.frombuffer(content, np.uint8) == 10)
    definitions = _definitions(found, content, ends_of_lines)
    functions = _functions(found, definitions, content, ends_of_lines)
    return Syntax(definitions, functions, _spans(found.get("comment", [])))


def _definitions(found: dict[str, list[Node]], content: bytes, ends_of_lines: Array) -> list[Definition]:
    names: dict[int, tuple[int, int]] = {}
    for kind, word in enumerate(KINDS):
        for node in found.get(word, ()):
            at = node.start_byte + (node.type == "simple_symbol")  # without Ruby's colon
            if node.end_byte - at <= _LONGEST_NAME:
                names.setdefault(at, (node.end_byte - at, kind))
    ats = sorted(at for at, (size, _) in names.items() if size > 0)
    lines = np.searchsorted(ends_of_lines, np.array(ats, np.int64)) + 1
    return [
        Definition(at, size, line, kind, name_number(content[at : at + size]))
        for at, line in zip(ats, lines.tolist(), strict=True)
        for size, kind in (names[at],)
    ]


def _spans(nodes: list[Node]) -> Array:
    """Sorted, the outer before the inner, each once."""
    spans = sorted({(node.start_byte, -node.end_byte) for node in nodes})
    array = np.array(spans, np.int64).reshape(-1, 2)
    array[:, 1] *= -1
    return array


class _Nest:
    """Spans inside each other: which is the innermost around a place?"""

    def __init__(self, spans: Array) -> None:
        self._starts, self._ends = spans[:, 0], spans[:, 1]
        parents: list[int] = []
        stack: list[int] = []
        for n, (start, _) in enumerate(spans.tolist()):
            while stack and self._ends[stack[-1]] <= start:
                stack.pop()
            parents.append(stack[-1] if stack else -1)
            stack.append(n)
        self._parents = np.array([*parents, -1], np.int64)  # the last is the parent of "none"

    def around(self, places: Array, *, begins: bool = False) -> Array:
        """-1: none. `begins`: a place where the span itself begins is inside it."""
        found = np.searchsorted(self._starts, places, side="right" if begins else "left") - 1
        while True:
            outside = (found >= 0) & (self._ends[found] <= places)
            if not outside.any():
                return found
            found[outside] = self._parents[found[outside]]


def _functions(
    found: dict[str, list[Node]], definitions: list[Definition], content: bytes, ends_of_lines: Array
) -> list[Function]:
    """What is counted belongs to the innermost function with a name."""
    spans = _spans(found.get("fn", []))
    if not len(spans):
        return []
    nest = _Nest(spans)
    named = [one for one in definitions if one.kind <= KINDS.index("function")]
    names: dict[int, bytes] = {}
    for owner, one in zip(nest.around(_starts(named), begins=True).tolist(), named, strict=True):
        names.setdefault(owner, content[one.at : one.at + one.size])
    parameters: dict[int, int] = {}
    lists = found.get("params", [])
    for owner, node in zip(nest.around(_places(lists)).tolist(), lists, strict=True):
        parameters.setdefault(owner, _parameters(node))
    counts = {what: _counts(nest, len(spans), found.get(what, [])) for what in ("a", "b", "c", "d", "cd")}
    conditions, decisions = counts["c"] + counts["cd"], counts["d"] + counts["cd"]
    lines = np.searchsorted(ends_of_lines, spans) + 1
    return [
        Function(
            names[n].decode("utf-8", "replace"),
            int(lines[n, 0]),
            int(lines[n, 1] - lines[n, 0]) + 1,
            parameters.get(n, 0),
            int(counts["a"][n]),
            int(counts["b"][n]),
            int(conditions[n]),
            int(decisions[n]) + 1,
        )
        for n in range(len(spans))
        if n in names
    ]


def _starts(definitions: list[Definition]) -> Array:
    return np.array([one.at for one in definitions], np.int64)


def _places(nodes: list[Node]) -> Array:
    return np.fromiter((node.start_byte for node in nodes), np.int64, len(nodes))


def _counts(nest: _Nest, functions: int, nodes: list[Node]) -> Array:
    owners = nest.around(_places(nodes))
    return np.bincount(owners[owners >= 0], minlength=functions)


def _parameters(node: Node) -> int:
    """As they are written: `a, b int` are two, `void` is none."""
    if node.type == "identifier":
        return 1
    count = 0
    for nth, child in enumerate(node.named_children):
        if child.type in _NO_PARAMETER or (child.type == "parameter_declaration" and child.text == b"void"):
            continue
        if node.field_name_for_named_child(nth) == "type":  # of the name beside it: C#'s `params`
            continue
        if child.prev_sibling is not None and child.prev_sibling.type == "=":  # Kotlin's default value
            continue
        count += max(1, len(child.children_by_field_name("name")))
    return count
