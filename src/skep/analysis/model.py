"""What an analysis found out about a source at one commit."""

import msgspec

from skep.storage.code_index.model import BookInfo


class Share(msgspec.Struct, frozen=True):
    files: int = 0
    bytes: int = 0
    lines: int = 0
    #: of the lines: nothing but comment, nothing at all
    comments: int = 0
    blanks: int = 0


class LanguageShare(msgspec.Struct, frozen=True):
    #: empty: not known
    name: str
    share: Share


class Hot(msgspec.Struct, frozen=True):
    """A function that stands out."""

    path: str
    line: int
    name: str
    language: str
    lines: int
    parameters: int
    assignments: int
    branches: int
    conditions: int
    #: of the three: the length of the vector
    score: float
    #: cyclomatic
    complexity: int


class FileSize(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    lines: int


class Report(msgspec.Struct, frozen=True):
    commit: str
    #: SPDX; empty: not known
    licence: str
    total: Share
    languages: list[LanguageShare]
    #: how many files say so
    licences: dict[str, int]
    test: Share
    vendored: Share
    generated: Share
    #: of code that was written here: neither vendored nor generated
    functions: int
    #: means over the functions
    score: float
    complexity: float
    #: highest score first; without tests
    hot: list[Hot]
    #: highest complexity first; without tests
    complex: list[Hot]
    largest: list[FileSize]


class ReportPoint(msgspec.Struct, frozen=True):
    """One report in a row of them: how a source changed."""

    commit: str
    at: float
    files: int
    lines: int
    functions: int
    score: float
    complexity: float


class Annotate(msgspec.Struct, frozen=True, tag=True):
    """Take in this book, if there is one; are these blobs known then?"""

    book: BookInfo | None
    blobs: tuple[str, ...] = ()


class Annotated(msgspec.Struct, frozen=True, tag=True):
    done: bool


class PutReport(msgspec.Struct, frozen=True, tag=True):
    source: str
    epoch: int
    report: Report


ReportRequest = Annotate | PutReport
