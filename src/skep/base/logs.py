"""Log lines: lower case, no full stop, fields instead of templates. One line each, to stderr."""

import asyncio
import itertools
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from skep.base.errors import SkepError
from skep.base.log_lines import Line, Lines

# Log lines on their way to the coordinator: a bounded buffer that outlives disconnections.
#
# When it is full the oldest go, and how many is the first thing that is told afterwards.

_ROOM = 10_000
_AT_ONCE = 500
_LONGEST = 8_000
_AGAIN_SECONDS = 1.0


class LineBuffer(logging.Handler):
    """`logging.getLogger().addHandler(lines)`, and `lines.run(send)` beside everything else."""

    def __init__(self, formatter: logging.Formatter, room: int = _ROOM) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._waiting: deque[Line] = deque(maxlen=room)
        self._numbers = itertools.count(1)
        #: everything up to this number has arrived, or was told to be missing
        self._told = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._come = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """On any thread, under the handler's lock."""
        about = str(getattr(record, "source", "") or getattr(record, "task", ""))
        text = self.format(record)[:_LONGEST]
        self._waiting.append(Line(next(self._numbers), record.created, record.levelno, text, about))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._come.set)

    async def run(self, send: Callable[[Lines], Awaitable[object]]) -> None:
        """For ever. What fails to be sent is kept and says nothing: it would only make more lines."""
        self._loop = asyncio.get_running_loop()
        while True:
            if not (lines := self._batch()):
                await self._come.wait()
                self._come.clear()
                continue
            try:
                await send(Lines(lines))
            except SkepError:
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._sent(lines[-1].n)

    def _batch(self) -> tuple[Line, ...]:
        """The oldest lines, after word of those that were dropped before them."""
        self.acquire()
        try:
            lines = tuple(itertools.islice(self._waiting, _AT_ONCE))
        finally:
            self.release()
        if not lines or not (dropped := lines[0].n - self._told - 1):
            return lines
        text = f"{dropped} older lines were dropped: they could not be sent in time"
        return (Line(lines[0].n - 1, lines[0].at, logging.WARNING, text), *lines)

    def _sent(self, last: int) -> None:
        self.acquire()
        try:
            self._told = last
            while self._waiting and self._waiting[0].n <= last:
                self._waiting.popleft()
        finally:
            self.release()


_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Text(logging.Formatter):
    """Without time and level, which the log of all processes keeps beside it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={_quoted(v)}" for k, v in record.__dict__.items() if k not in _OWN)
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{record.name} {record.getMessage()} {fields}".rstrip() + trace


class Whole(Text):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{at}.{int(record.msecs):03d}Z {record.levelname.lower():7} {super().format(record)}"


def _quoted(value: Any) -> str:
    text = str(value)
    # a control character from an upstream must not forge a line of its own
    return repr(text) if not text or not text.isprintable() or " " in text else text


def set_up_logs(level: str) -> LineBuffer:
    """Returns what gathers the lines for the log of all processes; whoever runs the process sends them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Whole())
    lines = LineBuffer(Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger().addHandler(lines)
    # its starts and stops are ours, told by ourselves
    logging.getLogger("uvicorn").setLevel("WARNING")
    # a database that is away is told, in a line, by whoever needs it
    logging.getLogger("asyncpg.pool").setLevel("ERROR")
    return lines
