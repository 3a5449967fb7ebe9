"""What the syntax tree of a file tells: the names it defines, the measures of its functions, where its comments are.

A parser that meets what it does not understand goes on behind it, so half a file is better than none. Whoever calls
this with a stranger's file bounds its size and the processor time, and survives the process: the grammars are C.
"""

import math
import re
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from tree_sitter import Node, Parser, QueryCursor

from skep.languages.grammars import GRAMMARS, load
from skep.languages.languages import LANGUAGES, classify
from skep.storage.code_index.analysis_files import KINDS, Definition, name_number
from skep.storage.code_index.model import GENERATED

# Under which licence: what a file says in its beginning (SPDX), and which licence a licence file is.
#
# A licence is recognised by phrases that only it has. The text of the GPL does not say whether "or later" is meant, so
# the answer does not either.

_SAYS = re.compile(rb"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]{2,100})")
_SAYS_WITHIN = 4_096
_FILE = re.compile(rb"^(un)?licen[cs]e|^copying|^mit-license", re.IGNORECASE)
_READ = 100_000
_NOT_WORDS = re.compile(rb"[^a-z0-9.]+")

#: the first of which all phrases are there; phrases are words with single spaces, lower case, without punctuation
_PHRASES: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("AGPL-3.0", (b"gnu affero general public license", b"version 3 19 november 2007")),
    ("LGPL-3.0", (b"gnu lesser general public license", b"version 3 29 june 2007")),
    ("LGPL-2.1", (b"gnu lesser general public license", b"version 2.1 february 1999")),
    ("LGPL-2.0", (b"gnu library general public license", b"version 2 june 1991")),
    ("GPL-3.0", (b"gnu general public license", b"version 3 29 june 2007")),
    ("GPL-2.0", (b"gnu general public license", b"version 2 june 1991")),
    ("Apache-2.0", (b"apache license", b"version 2.0 january 2004")),
    ("Apache-2.0", (b"licensed under the apache license version 2.0",)),
    ("MPL-2.0", (b"mozilla public license version 2.0",)),
    ("EPL-2.0", (b"eclipse public license v 2.0",)),
    ("EPL-1.0", (b"eclipse public license v 1.0",)),
    ("BSL-1.0", (b"boost software license version 1.0",)),
    ("CC0-1.0", (b"cc0 1.0 universal",)),
    ("CC-BY-SA-4.0", (b"attribution sharealike 4.0 international",)),
    ("CC-BY-4.0", (b"attribution 4.0 international",)),
    ("Unlicense", (b"free and unencumbered software released into the public domain",)),
    ("OFL-1.1", (b"sil open font license version 1.1",)),
    ("Artistic-2.0", (b"artistic license 2.0",)),
    ("PSF-2.0", (b"python software foundation license version 2",)),
    ("Zlib", (b"altered source versions must be plainly marked",)),
    ("WTFPL", (b"do what the fuck you want to public license",)),
    ("BSD-3-Clause", (b"redistributions of source code must retain", b"may be used to endorse or promote products")),
    ("BSD-2-Clause", (b"redistributions of source code must retain", b"redistributions in binary form must")),
    (
        "MIT",
        (b"permission is hereby granted free of charge", b"without restriction", b"shall be included in all copies"),
    ),
    ("MIT-0", (b"permission is hereby granted free of charge", b"without restriction")),
    ("ISC", (b"permission to use copy modify and or distribute this software for any purpose",)),
    ("ISC", (b"permission to use copy modify and distribute this software for any purpose",)),
)
_KNOWN = {name.lower(): name for name, _ in _PHRASES}


def named(identifier: str) -> str:
    """As SPDX spells it, where that is known; two identifiers never differ by their case alone."""
    return _KNOWN.get(identifier.lower(), identifier)


def is_licence_file(path: bytes) -> bool:
    return _FILE.match(path[path.rfind(b"/") + 1 :]) is not None


def licence_of(path: bytes, content: bytes) -> str:
    """An SPDX expression; empty: it says nothing that we understand."""
    said = _SAYS.search(content[:_SAYS_WITHIN])
    if said is not None:
        return said[1].strip().rstrip(b"-").strip().decode()
    return _recognise(content[:_READ]) if is_licence_file(path) else ""


def _recognise(text: bytes) -> str:
    words = _NOT_WORDS.sub(b" ", text.lower()).replace(b". ", b" ")
    return next((name for name, phrases in _PHRASES if all(phrase in words for phrase in phrases)), "")


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


# What is known about one git blob, whatever source and path it has: the facts that reports are folded from.

#: larger files have no definitions and no functions: hardly any of them was written by a person
MOST_BYTES = 1_000_000
#: of facts and books; a new one has everything analysed anew
VERSION = 2


class Facts(msgspec.Struct, frozen=True, array_like=True):
    language: str
    bytes: int
    lines: int
    comments: int
    blanks: int
    #: SPDX; empty: it says nothing
    licence: str
    #: by what the content says; the path may say so too
    generated: bool
    functions: list[Function]


def analyse(path: bytes, content: bytes, *, deep: bool = True) -> tuple[Facts, list[Definition]]:
    """One text. Of a file that is too large, and of any without `deep`, only what costs little."""
    language, marks = classify(path, content)
    grammar = grammar_of(language, path) if deep and len(content) <= MOST_BYTES else None
    syntax = read_syntax(grammar, content) if grammar else None
    lines, blanks, comments = _count(content, language, syntax.comments if syntax else None)
    facts = Facts(
        language,
        len(content),
        lines,
        comments,
        blanks,
        licence_of(path, content),
        bool(marks & GENERATED),
        syntax.functions if syntax else [],
    )
    return facts, syntax.definitions if syntax else []


def _count(content: bytes, language: str, spans: Array | None) -> tuple[int, int, int]:
    """Lines, blank lines, lines with nothing but comment. Where no syntax tells, by how lines begin."""
    if not content:
        return 0, 0, 0
    text = np.frombuffer(content, np.uint8)
    ink = text > 32
    starts = np.concatenate([[0], np.flatnonzero(text == 10) + 1])
    if starts[-1] == len(text):
        starts = starts[:-1]
    written = np.add.reduceat(ink, starts, dtype=np.int64) > 0
    blanks = len(starts) - int(np.count_nonzero(written))
    if spans is None:
        pattern = _comment_lines(language)
        return len(starts), blanks, len(pattern.findall(content)) if pattern else 0
    for start, end in spans.tolist():
        ink[start:end] = False
    code = int(np.count_nonzero(np.add.reduceat(ink, starts, dtype=np.int64)))
    return len(starts), blanks, len(starts) - blanks - code


@cache
def _comment_lines(language: str) -> re.Pattern[bytes] | None:
    known = LANGUAGES.get(language)
    if known is None or not known.comments:
        return None
    beginnings = b"|".join(re.escape(one.encode()) for one in known.comments)
    return re.compile(rb"^[ \t]*(?:" + beginnings + rb")", re.MULTILINE)
