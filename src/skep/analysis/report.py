"""One report per source: the facts of its files, folded. Pure."""

import heapq
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import TypeVar

import msgspec

from skep.analysis.model import FileSize, Hot, LanguageShare, Report, Share
from skep.languages.blob_facts import Facts, Function, is_licence_file
from skep.languages.languages import marks_of
from skep.storage.code_index.model import GENERATED, TEST, VENDORED

_MOST_HOT, _MOST_FILES, _MOST_LICENCES = 20, 20, 20
_LONGEST_NAME = 200
T = TypeVar("T", Hot, FileSize)


class File(msgspec.Struct, frozen=True):
    path: bytes
    size: int
    #: None: not text, or too large
    facts: Facts | None


class _Sum:
    def __init__(self) -> None:
        self.files = self.bytes = self.lines = self.comments = self.blanks = 0

    def add(self, file: File) -> None:
        self.files += 1
        self.bytes += file.size
        if file.facts is not None:
            self.lines += file.facts.lines
            self.comments += file.facts.comments
            self.blanks += file.facts.blanks

    @property
    def share(self) -> Share:
        return Share(self.files, self.bytes, self.lines, self.comments, self.blanks)


class Folding:
    """Files in any order; `report` when all were added."""

    def __init__(self) -> None:
        self._total = _Sum()
        self._languages: dict[str, _Sum] = {}
        self._marks = {mark: _Sum() for mark in (TEST, VENDORED, GENERATED)}
        self._licences: Counter[str] = Counter()
        self._root: list[tuple[bytes, str]] = []
        self._functions = self._complexity = 0
        self._score = 0.0
        self._hot: list[Hot] = []
        self._largest: list[FileSize] = []

    def add(self, file: File) -> None:
        facts = file.facts
        marks = marks_of(file.path) | (GENERATED if facts and facts.generated else 0)
        self._total.add(file)
        for mark, share in self._marks.items():
            if marks & mark:
                share.add(file)
        self._largest.append(FileSize(_text(file.path), file.size, facts.lines if facts else 0))
        if len(self._largest) > 50 * _MOST_FILES:
            self._largest = _most(self._largest, "bytes", _MOST_FILES)
        if facts is None:
            return
        self._languages.setdefault(facts.language, _Sum()).add(file)
        self._note_licence(file.path, facts.licence, marks)
        if not marks & (VENDORED | GENERATED):
            self._note_functions(file.path, facts, bool(marks & TEST))

    def _note_licence(self, path: bytes, licence: str, marks: int) -> None:
        if licence and not marks & VENDORED:
            self._licences[licence] += 1
            if b"/" not in path and is_licence_file(path):
                self._root.append((path, licence))

    def _note_functions(self, path: bytes, facts: Facts, test: bool) -> None:
        for one in facts.functions:
            self._functions += 1
            self._complexity += one.complexity
            self._score += one.score
            if not test:
                self._hot.append(_hot(_text(path), facts.language, one))
        if len(self._hot) > 100 * _MOST_HOT:
            self._hot = self._hottest()

    def _hottest(self) -> list[Hot]:
        """By score and by complexity: the union."""
        by_score = _most(self._hot, "score", _MOST_HOT)
        return by_score + [one for one in _most(self._hot, "complexity", _MOST_HOT) if one not in by_score]

    def report(self, commit: str) -> Report:
        languages = [LanguageShare(name, share.share) for name, share in self._languages.items()]
        count = max(1, self._functions)
        return Report(
            commit=commit,
            licence=self._licence(),
            total=self._total.share,
            languages=sorted(languages, key=lambda one: (-one.share.lines, one.name)),
            licences=dict(self._licences.most_common(_MOST_LICENCES)),
            test=self._marks[TEST].share,
            vendored=self._marks[VENDORED].share,
            generated=self._marks[GENERATED].share,
            functions=self._functions,
            score=round(self._score / count, 2),
            complexity=round(self._complexity / count, 2),
            hot=_most(self._hot, "score", _MOST_HOT),
            complex=_most(self._hot, "complexity", _MOST_HOT),
            largest=_most(self._largest, "bytes", _MOST_FILES),
        )

    def _licence(self) -> str:
        """What the files at the top say; without them what most files say."""
        if self._root:
            return " AND ".join(dict.fromkeys(licence for _, licence in sorted(self._root)))
        return self._licences.most_common(1)[0][0] if self._licences else ""


def fold(files: Iterable[File], commit: str) -> Report:
    folding = Folding()
    for file in files:
        folding.add(file)
    return folding.report(commit)


def _most(items: list[T], by: str, count: int) -> list[T]:
    value = attrgetter(by)
    return heapq.nsmallest(count, items, key=lambda one: (-value(one), one.path))


def _hot(path: str, language: str, one: Function) -> Hot:
    return Hot(
        path,
        one.line,
        one.name[:_LONGEST_NAME],
        language,
        one.lines,
        one.parameters,
        one.assignments,
        one.branches,
        one.conditions,
        one.score,
        one.complexity,
    )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")
