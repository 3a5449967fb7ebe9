"""The log of all processes: the newest lines of each, in the order in which they came to a coordinator."""

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial

from skep.base.answers import ProcessStatus
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.log_lines import SEVERITY, Level, Line, LogLine
from skep.client import Client
from skep.interfaces.terminal import clean, print_json
from skep.spaces import batch
from skep.spaces.api import Typed, template_of
from skep.spaces.batch import Pattern
from skep.storage.database import Database, Row, Tx, Value, inserting

# `skep log`: what every process says.

_WAIT_SECONDS = 30.0


def show(client: Client, args: Namespace) -> None:
    asked = {"level": args.level, "process": args.process, "about": args.about}
    lines = client.log(limit=args.lines, **asked)
    _print(lines, args.json)
    last = lines[-1].n if lines else 0
    while args.follow:
        lines = client.log(after=last, limit=1000, wait=_WAIT_SECONDS, **asked)
        _print(lines, args.json)
        last = lines[-1].n if lines else last


def _print(lines: list[LogLine], as_json: bool) -> None:
    for line in lines:
        if as_json:
            print_json(line)
            continue
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
        first, *rest = line.text.split("\n")
        print(clean(f"{at} {line.level:7} {line.process} {first}"))
        for more in rest:
            print("  " + clean(more))
    sys.stdout.flush()


_CHANNEL = "log"
_STEPS = [
    """
    CREATE TABLE logline (
        n BIGINT PRIMARY KEY, mark TEXT NOT NULL UNIQUE, at DOUBLE PRECISION NOT NULL, severity BIGINT NOT NULL,
        process TEXT NOT NULL, about TEXT NOT NULL, text TEXT NOT NULL
    );
    CREATE TABLE logline_count (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO logline_count (id, n) VALUES (0, 0)
    """
]
_COLUMNS = ("n", "mark", "at", "severity", "process", "about", "text")
_FOUND = (
    "SELECT n, at, severity, process, about, text FROM logline WHERE n > :after AND severity >= :severity "
    "AND (process = :process OR :process = '') AND (about = :about OR :about = '') "
)


class Journal:
    def __init__(self, db: Database, clock: Clock, keep: int) -> None:
        """`keep` is how many lines are kept, of all processes together."""
        self._db = db
        self._clock = clock
        self._keep = keep

    async def start(self) -> None:
        await self._db.migrate("journal", _STEPS)

    async def store(self, process: str, boot: int, lines: tuple[Line, ...]) -> None:
        """Lines that are repeated are stored once."""

        async def work(tx: Tx) -> None:
            rows = await tx.rows("UPDATE logline_count SET n = n + :count WHERE id = 0 RETURNING n", count=len(lines))
            last = int(rows[0]["n"])
            await tx.many(
                inserting("logline", _COLUMNS, "ON CONFLICT (mark) DO NOTHING"),
                [
                    {
                        "n": n,
                        "mark": f"{process}/{boot}/{line.n}",
                        "at": line.at,
                        "severity": line.severity,
                        "process": process,
                        "about": line.about.replace("\0", "␀"),
                        "text": line.text.replace("\0", "␀").encode("utf-8", "replace").decode(),
                    }
                    for n, line in enumerate(lines, last - len(lines) + 1)
                ],
            )
            await tx.rows("DELETE FROM logline WHERE n <= :last", last=last - self._keep)
            tx.ring(_CHANNEL)

        await self._db.write(work, runtime=True)

    async def read(
        self,
        caller: Caller,
        *,
        after: int | None = None,
        limit: int = 100,
        level: Level = "debug",
        process: str = "",
        about: str = "",
        wait: float = 0.0,
    ) -> list[LogLine]:
        """The newest lines, or the next ones `after` a number; then up to `wait` seconds for some to come."""
        caller.need("private")  # a line may name any source
        asked: dict[str, Value] = {"severity": SEVERITY[level], "process": process, "about": about, "limit": limit}
        if after is None:
            rows = await self._db.read(_FOUND + "ORDER BY n DESC LIMIT :limit", after=-1, **asked)
            return [_line(row) for row in reversed(rows)]
        next_ones = _FOUND + "ORDER BY n LIMIT :limit"
        until = self._clock.now() + wait
        async with self._db.listen(_CHANNEL) as bell:
            while not (rows := await self._db.read(next_ones, after=after, **asked)):
                left = until - self._clock.now()
                if left <= 0 or not await bell.wait(left):
                    break
        return [_line(row) for row in rows]


def _line(row: Row) -> LogLine:
    level = max(
        (one for one in SEVERITY if SEVERITY[one] <= row["severity"]), key=SEVERITY.__getitem__, default="debug"
    )
    return LogLine(row["n"], row["at"], level, row["process"], row["about"], row["text"])  # type: ignore[arg-type]


# The update-status protocol: every process has exactly one tuple (id, what it does, since when) in the space `status`.
#
# Replaced in one step, so that it is never missing or there twice; gone when the process leaves. What a process left
# that
# died, or whose coordinator did, is not shown any more and swept away.

SPACE = "status"
IDLE = "idle"
_ANY = template_of((str, str, float))
#: a serving process says so often that it is there; it counts as gone when it did not three times
_EVERY_SECONDS = 10.0
_MOST = 10_000


class Statuses:
    def __init__(self, db: Database, clock: Clock, own: str) -> None:
        """`own` is the id of this process."""
        self._db = db
        self._clock = clock
        self._own = own
        self._told: dict[str, str] = {}
        self._shown: dict[str, str] = {}

    async def tell(self, process: str, doing: str) -> None:
        """`doing` is "idle" or what it works on."""
        before = self._told.get(process, IDLE)
        if doing != IDLE:
            text = f"Working on: {doing}"
        elif before != IDLE:
            text = f"idle, last task: {before}"
        else:
            text = self._shown.get(process, IDLE)
        self._told[process] = doing
        if self._shown.get(process) != text:
            self._shown[process] = text
            await self._replace(process, text)

    async def _replace(self, process: str, text: str) -> None:
        fields = (process, text, self._clock.now())
        work = partial(batch.replace, space=SPACE, template=_of(process), fields=fields)
        await self._db.write(work, runtime=True)

    async def remove(self, process: str) -> None:
        self._told.pop(process, None)
        self._shown.pop(process, None)
        await self._db.write(partial(batch.remove, space=SPACE, template=_of(process)), runtime=True)

    async def close(self) -> None:
        await self.remove(self._own)

    async def keep(self, alive: Callable[[], Awaitable[set[str]]]) -> None:
        """For ever: this process is there; who is neither `alive` nor was heard of lately is not."""
        while True:
            await self._replace(self._own, IDLE)
            await self.sweep(await alive())
            await asyncio.sleep(_EVERY_SECONDS)

    async def sweep(self, alive: set[str]) -> None:
        living = {one.id for one in await self.living(alive)}
        for one in await self.all():
            if one.id not in living:
                await self.remove(one.id)

    async def living(self, alive: set[str]) -> list[ProcessStatus]:
        """Of members that are `alive`, and of whoever else was heard of lately."""
        late = self._clock.now() - 3 * _EVERY_SECONDS
        return [one for one in await self.all() if one.id in alive or one.at >= late]

    async def all(self) -> list[ProcessStatus]:
        found = await batch.matching(self._db.read, SPACE, Pattern(_ANY), _MOST, lock="")
        return sorted((ProcessStatus(*one.fields) for one in found), key=lambda one: one.id)  # type: ignore[arg-type]


def _of(process: str) -> tuple[str, Typed, Typed]:
    return (process, Typed("str"), Typed("float"))
