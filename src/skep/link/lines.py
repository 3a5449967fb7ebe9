"""Log lines on their way to the coordinator: a bounded buffer that outlives disconnections.

When it is full the oldest go, and how many is the first thing that is told afterwards.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from skep.errors import SkepError
from skep.model.log import Line, Lines

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
