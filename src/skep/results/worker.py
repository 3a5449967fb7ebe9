"""Results on their way: on this worker's disk before a task hears that they are recorded, then with the coordinator.

While the coordinator is away they wait in worker.db. A task has ended only when its results have arrived.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from skep.base.errors import BadInput, Busy, SkepError, TooLarge
from skep.results.api import Draft, Record
from skep.results.fields import LARGEST, MOST_DRAFTS, read
from skep.rpc.messages import AnswerBody, AskBody
from skep.storage.database import Database, Tx, Value
from skep.tasks.model import TaskHold

log = logging.getLogger(__name__)

OWN_FILE = "results.jsonl"
_MOST_FILES = 1_000
#: that wait for a coordinator; then tasks are refused theirs
_MOST_WAITING = 200_000
_AT_ONCE = 500
#: of one ask; a frame of the link holds more
_BYTES = 500_000
_PAUSE_SECONDS = 1.0
_INSERT = "INSERT INTO recorded (task, attempt, number, body) VALUES (:task, :attempt, :number, :body)"
_draft = msgspec.msgpack.Decoder(Draft).decode


class Recording:
    def __init__(self, db: Database, ask: Callable[[AskBody], Awaitable[AnswerBody]], machine: str) -> None:
        self._db = db
        self._ask = ask
        self.machine = machine
        self._next: Counter[TaskHold] = Counter()
        self._waiting: Counter[TaskHold] = Counter()
        self._refused: dict[TaskHold, SkepError] = {}
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        """What an earlier process of this worker left."""
        rows = await self._db.read("SELECT task, attempt, count(*) AS n FROM recorded GROUP BY task, attempt")
        self._waiting.update({(row["task"], row["attempt"]): row["n"] for row in rows})

    async def add(self, hold: TaskHold, drafts: Sequence[Draft]) -> None:
        """Durable on return."""
        if self._waiting.total() + len(drafts) > _MOST_WAITING:
            raise Busy(f"{_MOST_WAITING:,} results wait for the coordinator already", hint="try again when it is back")
        first = self._next[hold]
        self._next[hold] += len(drafts)
        rows: list[dict[str, Value]] = [
            {"task": hold[0], "attempt": hold[1], "number": first + n, "body": msgspec.msgpack.encode(draft)}
            for n, draft in enumerate(drafts)
        ]
        await self._db.write(lambda tx: tx.many(_INSERT, rows))
        await self._count(hold, len(rows))

    async def settled(self, hold: TaskHold) -> None:
        """Returns when the coordinator has them all; what it refused is raised."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._waiting[hold])
        if error := self.forget(hold):
            raise error

    def forget(self, hold: TaskHold) -> SkepError | None:
        """Nobody waits for what becomes of them; those that are here are sent all the same."""
        self._next.pop(hold, None)
        return self._refused.pop(hold, None)

    async def run(self) -> None:
        """For ever."""
        while True:
            async with self._changed:
                # what is sent before it is counted counts less than nothing for a moment
                await self._changed.wait_for(lambda: self._waiting.total() > 0)
            rows = await self._db.read(
                "SELECT task, attempt, number, body FROM recorded ORDER BY task, attempt, number LIMIT :most",
                most=_AT_ONCE,
            )
            hold, first, size, drafts = (rows[0]["task"], rows[0]["attempt"]), rows[0]["number"], 0, list[Draft]()
            for row in rows:
                size += len(row["body"])
                if (row["task"], row["attempt"]) != hold or (drafts and size > _BYTES):
                    break
                drafts.append(_draft(row["body"]))
            await self._send(Record(*hold, first, tuple(drafts), self.machine))

    async def _send(self, record: Record) -> None:
        hold = (record.task, record.attempt)
        try:
            await self._ask(record)
        except SkepError as error:
            if error.status >= 500:
                log.warning("results of %s have to wait: %s", record.task, error.message)
                await asyncio.sleep(_PAUSE_SECONDS)
                return
            log.warning("results of %s were refused: %s", record.task, error.message)
            if hold in self._next:
                self._refused[hold] = error
        await self._db.write(lambda tx: _sent(tx, record))
        await self._count(hold, -len(record.results))

    async def _count(self, hold: TaskHold, change: int) -> None:
        async with self._changed:
            self._waiting[hold] += change
            if not self._waiting[hold]:
                del self._waiting[hold]
            self._changed.notify_all()


async def _sent(tx: Tx, record: Record) -> None:
    await tx.rows(
        "DELETE FROM recorded WHERE task = :task AND attempt = :attempt AND number < :end",
        task=record.task,
        attempt=record.attempt,
        end=record.first + len(record.results),
    )


def found(work: Path, patterns: Sequence[str]) -> list[Draft]:
    """What a task that is over left in files. Whatever it put there, no link leads out of its folder."""
    inside, drafts, left = work.resolve(), list[Draft](), set[Path]()
    for pattern in (OWN_FILE, *patterns):
        paths = {path.resolve() for path in work.glob(pattern) if path.is_file()}
        paths = {path for path in paths if path.is_relative_to(inside)}
        if not paths and pattern != OWN_FILE:
            raise BadInput(f"the task left no file {pattern!r} with results")
        if len(left | paths) > _MOST_FILES:
            raise TooLarge(f"the task left more than {_MOST_FILES:,} files with results")
        for path in sorted(paths - left):
            with path.open("rb") as file:
                drafts += read(str(path.relative_to(inside)), file.read(LARGEST + 1))
            if len(drafts) > MOST_DRAFTS:
                raise TooLarge(f"the task left more than {MOST_DRAFTS:,} results")
        left |= paths
    return drafts
