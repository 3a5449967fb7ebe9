"""The log of all processes: the newest lines of each, in the order in which they came to a coordinator."""

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx, Value, inserting
from skep.model.caller import Caller
from skep.model.log import SEVERITY, Level, Line, LogLine

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
