"""What is known about one git blob, whatever source and path it has: the facts that reports are folded from."""

import re
from functools import cache

import msgspec
import numpy as np

from skep.analysis.language import classify
from skep.analysis.licence import licence_of
from skep.analysis.syntax import Array, Function, grammar_of, read_syntax
from skep.analysis.table import LANGUAGES
from skep.engines.index.books import Definition
from skep.model.search import GENERATED

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
