"""Colours source code, line by line. Runs as a child process: a lexer's `re` may meet a file it never finishes.

Asked and answered in lines of JSON: {"name", "text"} -> the HTML of each line, or null for an unknown language.
"""

import resource
import sys
from collections.abc import Iterator

import msgspec
from markupsafe import escape
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import (
    Comment,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    String,
    Token,
    _TokenType,
    is_token_subtype,
)
from pygments.util import ClassNotFound

_MEMORY = 1 << 30
#: the first that holds a token's type names its CSS class
_CLASSES = (
    (Comment.Preproc, "p"),
    (Comment, "c"),
    (String.Doc, "c"),
    (String, "s"),
    (Number, "l"),
    (Literal, "l"),
    (Keyword.Constant, "l"),
    (Keyword.Type, "t"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "t"),
    (Name.Builtin, "b"),
    (Name.Decorator, "p"),
    (Name.Tag, "k"),
    (Name.Attribute, "f"),
    (Token.Generic.Heading, "k"),
    (Token.Generic.Deleted, "d"),
    (Token.Generic.Inserted, "i"),
)


class Job(msgspec.Struct):
    name: str
    text: str


def colour(name: str, text: str) -> list[str] | None:
    try:
        found = find_lexer_class_for_filename(name)
    except ClassNotFound:
        found = None
    if found is None:
        return None
    lexer: Lexer = found(stripnl=False, ensurenl=False)
    lines = list(_lines(lexer, text))
    return lines if len(lines) == text.count("\n") + 1 else None


def _lines(lexer: Lexer, text: str) -> Iterator[str]:
    line: list[str] = []
    for kind, value in lexer.get_tokens(text):
        mark = _class(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                yield "".join(line)
                line = []
            if part:
                line.append(f'<span class="{mark}">{escape(part)}</span>' if mark else str(escape(part)))
    yield "".join(line)


def _class(kind: _TokenType) -> str:
    return next((name for group, name in _CLASSES if is_token_subtype(kind, group)), "")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        sys.stdout.buffer.write(msgspec.json.encode(colour(job.name, job.text)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
