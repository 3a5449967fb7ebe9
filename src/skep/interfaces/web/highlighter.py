"""Keeps the child that colours code: started when first needed, killed when slow, let go when idle."""

import asyncio
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator

import msgspec
from markupsafe import Markup, escape
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

# Colours source code, line by line. Runs as a child process: a lexer's `re` may meet a file it never finishes.
#
# Asked and answered in lines of JSON: {"name", "text"} -> the HTML of each line, or null for an unknown language.

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


LARGEST = 512_000
LONGEST_LINE = 5_000
SECONDS = 2.0
IDLE_SECONDS = 120.0


class Painter:
    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._child: Process | None = None
        self._one = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def lines(self, name: str, text: str) -> list[Markup]:
        """The HTML of each line; plain when it is large, of an unknown language or takes too long."""
        rows = text.split("\n")
        if len(text) <= LARGEST and max(map(len, rows)) <= LONGEST_LINE and "\r" not in text.replace("\r\n", ""):
            painted = await self._paint({"name": name, "text": text.replace("\r\n", "\n")})
            if painted is not None:
                return [Markup(line) for line in painted]  # noqa: S704  (the child escaped every part)
        return [escape(row) for row in rows]

    async def _paint(self, job: dict[str, str]) -> list[str] | None:
        try:
            async with asyncio.timeout(self._seconds), self._one:
                return await self._ask_or_kill(job)
        except (TimeoutError, OSError, ValueError, RuntimeError):  # RuntimeError: what uvloop calls a broken pipe
            return None

    async def _ask_or_kill(self, job: dict[str, str]) -> list[str] | None:
        if self._idle:
            self._idle.cancel()
        try:
            return await self._ask(job)
        except BaseException:  # an answer may be under way that the next one must not read
            await self._kill()
            raise
        finally:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._let_go)

    async def _ask(self, job: dict[str, str]) -> list[str] | None:
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "skep.interfaces.web.highlighter",
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=1 << 26,
            )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(msgspec.json.encode(job) + b"\n")
        await self._child.stdin.drain()
        return msgspec.json.decode(await self._child.stdout.readline(), type=list[str] | None)

    def _let_go(self) -> None:
        """The end of its input ends the child."""
        if self._child is not None and self._child.stdin is not None and not self._one.locked():
            self._child.stdin.close()

    async def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            child.kill()
            await child.wait()

    async def close(self) -> None:
        if self._idle:
            self._idle.cancel()
        await self._kill()


if __name__ == "__main__":
    main()
