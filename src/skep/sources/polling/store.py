"""What a worker must not forget: its name, what it holds, what it has told, outcomes nobody has acknowledged yet."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from skep.base.clock import Clock
from skep.base.ids import new_id
from skep.rpc.messages import Failed, Fetched, FetchNow, Hold, Order, Outcome, Release
from skep.sources.model import Held
from skep.sources.polling.schedule import CELL, FIRST_OBSERVED, REPLICAS, Bounds, Cell, Counted, Plan, Rest, host_of
from skep.storage.database import Database, Row, Tx, Value

# The worker's own file: tables and statements. `look` is apart from `held`, so that a look never rewrites `told`.

STEPS = [
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
    INSERT INTO counter (name, value) VALUES ('boot', 0), ('outbox', 0);
    CREATE TABLE held (
        source TEXT PRIMARY KEY, epoch BIGINT NOT NULL, spec BYTEA NOT NULL, told BYTEA NOT NULL, seen TEXT NOT NULL,
        batches BIGINT NOT NULL, fetching BIGINT NOT NULL, asked BIGINT NOT NULL, released BIGINT NOT NULL,
        replica BIGINT NOT NULL
    );
    CREATE TABLE look (
        source TEXT PRIMARY KEY, last_looked DOUBLE PRECISION NOT NULL, last_changed DOUBLE PRECISION NOT NULL,
        next_look DOUBLE PRECISION NOT NULL, failures BIGINT NOT NULL, failure TEXT, changes DOUBLE PRECISION NOT NULL,
        observed DOUBLE PRECISION NOT NULL, wait DOUBLE PRECISION NOT NULL,
        shortest DOUBLE PRECISION NOT NULL, longest DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX look_next ON look (next_look, source);
    CREATE INDEX held_released ON held (source) WHERE released = 1;
    CREATE TABLE outbox (n BIGINT PRIMARY KEY, body BYTEA NOT NULL);
    CREATE TABLE recorded (
        task TEXT NOT NULL, attempt BIGINT NOT NULL, number BIGINT NOT NULL, body BYTEA NOT NULL,
        PRIMARY KEY (task, attempt, number)
    );
    CREATE TABLE host (name TEXT PRIMARY KEY, rests_until DOUBLE PRECISION NOT NULL, pace DOUBLE PRECISION NOT NULL)
    """
]

SET_BACK = (
    "UPDATE look SET last_looked = last_looked - :back, last_changed = last_changed - :back, "
    "next_look = next_look - :back",
    "UPDATE host SET rests_until = rests_until - :back",
)

#: higher than any before, also than those of a copy of this file that was used elsewhere
BOOT = "UPDATE counter SET value = MAX(value + 1, :now) WHERE name = 'boot' RETURNING value"

COUNT = "UPDATE counter SET value = value + 1 WHERE name = :name RETURNING value"

WATCH = """
    SELECT spec, seen, batches, fetching, asked, last_looked, last_changed, next_look, failures, failure,
        changes, observed, wait, shortest, longest
    FROM look JOIN held ON held.source = look.source
"""

#: the next ones by time, after a place in that order
NEXT = (
    WATCH
    + """
    WHERE (look.next_look, look.source) > (:after, :source) AND released = 0
    ORDER BY look.next_look, look.source LIMIT :limit
"""
)

#: how many sources wait how long: what the policy has counted
CELLS = """
    SELECT shortest, longest, CAST(FLOOR(LN(wait) / :width) AS BIGINT) AS cell, COUNT(*) AS n, SUM(1 / wait) AS looks
    FROM look WHERE wait > 0 GROUP BY 1, 2, 3
"""

META = "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

KNOWN = "SELECT epoch, spec, released FROM held WHERE source = :source"

HOLD = """
    INSERT INTO held (source, epoch, spec, told, seen, batches, fetching, asked, released, replica)
    VALUES (:source, :epoch, :spec, :told, '', :batches, 0, 0, 0, :replica)
    ON CONFLICT (source) DO UPDATE SET epoch = excluded.epoch, spec = excluded.spec, told = excluded.told, seen = '',
        batches = excluded.batches, fetching = 0, asked = 0, released = 0, replica = excluded.replica
"""

#: the same epoch again: what was told stays; a mirror that was to go, or another address, is fetched anew
HOLD_AGAIN = """
    UPDATE held SET spec = :spec, seen = CASE WHEN :anew = 1 THEN '' ELSE seen END, released = 0 WHERE source = :source
"""

TELL = """
    UPDATE held SET told = COALESCE(:told, told), seen = :seen, batches = :batches, fetching = :fetching, asked = :asked
    WHERE source = :source AND epoch = :epoch AND released = 0 RETURNING source
"""

OUTBOX = "INSERT INTO outbox (n, body) VALUES (:n, :body)"

#: one that is held anew comes in where the others are now
ENTER = """
    INSERT INTO look
        (source, last_looked, last_changed, next_look, failures, failure, changes, observed, wait, shortest, longest)
    VALUES (:source, 0, :changed_at, :now, 0, NULL, :changes, :observed, 0, 0, 0)
    ON CONFLICT (source) DO UPDATE SET last_looked = 0, last_changed = excluded.last_changed,
        next_look = excluded.next_look, failures = 0, failure = NULL, changes = excluded.changes,
        observed = excluded.observed, wait = 0, shortest = 0, longest = 0
"""

#: what was planned in an earlier epoch, or as a replica, is nobody's plan any more
NOTE = """
    UPDATE look SET last_looked = :last_looked, last_changed = :last_changed, next_look = :next_look,
        failures = :failures, failure = :failure, changes = :changes, observed = :observed, wait = :wait,
        shortest = :shortest, longest = :longest
    WHERE source = :source AND EXISTS
        (SELECT 1 FROM held WHERE held.source = :source AND held.epoch = :epoch AND held.replica = :replica)
"""

REST = """
    INSERT INTO host (name, rests_until, pace) VALUES (:name, :until, :pace)
    ON CONFLICT (name) DO UPDATE SET rests_until = excluded.rests_until, pace = excluded.pace
"""


# A held source and when it is looked at: the poller's working memory of it.


@dataclass(slots=True, eq=False)
class Watch(Plan):
    #: without `told`, which stays in the file until a fetch needs it
    held: Held
    #: fetch-nows that no outcome has answered yet
    asks: int = 0
    #: a fetch was begun and not told: the mirror may be ahead of `told`
    fetching: bool = False
    #: what an earlier process left behind was cleared away
    mended: bool = False
    host: str = ""

    def __post_init__(self) -> None:
        self.host = host_of(self.held.url) if self.held.primary else REPLICAS

    @property
    def source(self) -> str:
        return self.held.source


# How a watch stands in the worker's file: one row of `held`, one of `look`.

_rows_encode = msgspec.msgpack.encode
_held = msgspec.msgpack.Decoder(Held).decode

_NOTED = (
    "last_looked",
    "last_changed",
    "next_look",
    "failures",
    "failure",
    "changes",
    "observed",
    "wait",
)


def note_of(watch: Watch) -> dict[str, Value]:
    bounds = watch.bounds
    noted = {name: getattr(watch, name) for name in _NOTED}
    return {
        "source": watch.source,
        "epoch": watch.held.epoch,
        "replica": int(not watch.held.primary),
        "shortest": bounds.shortest,
        "longest": bounds.longest,
        **noted,
    }


def watch_of(row: Row) -> Watch:
    held = msgspec.structs.replace(_held(row["spec"]), seen=row["seen"], batches=row["batches"])
    bounds = Bounds(row["shortest"], row["longest"])
    noted = {name: row[name] for name in _NOTED}
    return Watch(held, asks=row["asked"], fetching=bool(row["fetching"]), bounds=bounds, **noted)


async def hold(tx: Tx, held: Held, now: float) -> None:
    known = await tx.rows(KNOWN, source=held.source)
    spec = _rows_encode(msgspec.structs.replace(held, told={}, seen="", batches=0))
    if known and known[0]["epoch"] > held.epoch:
        return
    if known and known[0]["epoch"] == held.epoch and (before := _held(known[0]["spec"])).primary == held.primary:
        anew = known[0]["released"] or before.url != held.url
        await tx.rows(HOLD_AGAIN, source=held.source, spec=spec, anew=int(anew))
        if anew or not held.primary or (before.settings, before.accepted) != (held.settings, held.accepted):
            await tx.rows("UPDATE look SET next_look = :now WHERE source = :source", source=held.source, now=now)
        return
    await tx.rows(
        HOLD,
        source=held.source,
        epoch=held.epoch,
        spec=spec,
        told=_rows_encode(held.told),
        batches=held.batches,
        replica=int(not held.primary),
    )
    await tx.rows(
        ENTER,
        source=held.source,
        now=now,
        changed_at=held.changed_at,
        changes=held.changes,
        observed=FIRST_OBSERVED + held.observed,
    )


log = logging.getLogger(__name__)

#: outcomes kept while the coordinator is away; then nothing is fetched any more, and nothing is dropped
OUTBOX_LIMIT = 10_000

#: in the order of next looks: the time, then the source
Place = tuple[float, str]

_encode = msgspec.msgpack.encode
_told = msgspec.msgpack.Decoder(dict[str, str]).decode
_outcome = msgspec.msgpack.Decoder(Outcome).decode


class Store:
    def __init__(self, db: Database, clock: Clock, limit: int = OUTBOX_LIMIT) -> None:
        self._db = db
        self._clock = clock
        self._limit = limit
        self._pending = 0
        self._noted: dict[str, Watch] = {}
        self._resting: dict[str, Rest] = {}
        self._cells: Sequence[Counted] = ()
        #: as late as it ever was by the clock
        self._latest = 0.0
        self.member = ""
        self.boot = 0
        #: called when the outbox has grown
        self.on_outcome: Callable[[], None] = lambda: None

    @property
    def full(self) -> bool:
        return self._pending >= self._limit

    async def start(self) -> None:
        await self._db.migrate("worker", STEPS)
        self._latest = now = self._clock.now()
        fresh = new_id("wrk", now)

        async def work(tx: Tx) -> tuple[int, str]:
            boot = await tx.rows(BOOT, now=int(now * 1000))
            await tx.rows(
                "INSERT INTO meta (name, value) VALUES ('member', :id) ON CONFLICT (name) DO NOTHING", id=fresh
            )
            member = await tx.rows("SELECT value FROM meta WHERE name = 'member'")
            await _follow_back(tx, now)
            return boot[0]["value"], member[0]["value"]

        self.boot, self.member = await self._db.write(work)
        self._pending = (await self._db.read("SELECT count(*) AS n FROM outbox"))[0]["n"]

    # what is held

    async def next(self, after: Place, limit: int) -> list[Watch]:
        """By the time of their next look."""
        rows = await self._db.read(NEXT, after=after[0], source=after[1], limit=limit)
        return [watch_of(row) for row in rows]

    async def watch(self, source: str, *, released: bool = False) -> Watch | None:
        sql = WATCH + " WHERE look.source = :source AND released = :released"
        rows = await self._db.read(sql, released=int(released), source=source)
        return watch_of(rows[0]) if rows else None

    async def released(self) -> list[Watch]:
        return [watch_of(row) for row in await self._db.read(WATCH + " WHERE released = 1")]

    async def cells(self) -> list[Counted]:
        """As they were last kept; where there was no budget before, they are counted."""
        if kept := await self._db.read("SELECT value FROM meta WHERE name = 'cells'"):
            return msgspec.json.decode(kept[0]["value"], type=list[Counted])
        rows = await self._db.read(CELLS, width=CELL)
        return [(Bounds(row["shortest"], row["longest"]), row["cell"], Cell(row["n"], row["looks"])) for row in rows]

    def keep(self, cells: Sequence[Counted]) -> None:
        """Written with the looks of the next `flush`."""
        self._cells = cells

    async def refused(self) -> list[str]:
        """Those that wanted other credentials when they were last asked."""
        return [row["source"] for row in await self._db.read("SELECT source FROM look WHERE failure = 'auth'")]

    async def sources(self) -> list[str]:
        return [row["source"] for row in await self._db.read("SELECT source FROM held WHERE released = 0")]

    async def told(self, source: str) -> dict[str, str]:
        rows = await self._db.read("SELECT told FROM held WHERE source = :source", source=source)
        return _told(rows[0]["told"]) if rows else {}

    async def obey(self, orders: Sequence[Order]) -> None:
        """All of them in one transaction; durable on return."""
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            for order in orders:
                match order.body:
                    case Hold(held):
                        await hold(tx, held, now)
                    case Release(source):
                        await tx.rows("UPDATE held SET released = 1 WHERE source = :source", source=source)
                    case FetchNow(source, epoch):
                        await tx.rows(
                            "UPDATE held SET asked = 1 WHERE source = :source AND epoch = :epoch",
                            source=source,
                            epoch=epoch,
                        )

        await self._db.write(work)

    async def forget(self, source: str) -> None:
        """The mirror of a released source is gone."""

        async def work(tx: Tx) -> None:
            gone = await tx.rows(
                "DELETE FROM held WHERE source = :source AND released = 1 RETURNING source", source=source
            )
            if gone:
                await tx.rows("DELETE FROM look WHERE source = :source", source=source)

        self._noted.pop(source, None)
        await self._db.write(work)

    # what is told

    async def begin(self, watch: Watch) -> None:
        """From here to `tell` the mirror may be ahead of what was told; whoever comes after a crash must compare."""
        if watch.fetching:
            return

        async def work(tx: Tx) -> None:
            await tx.rows(
                "UPDATE held SET fetching = 1 WHERE source = :source AND epoch = :epoch",
                source=watch.source,
                epoch=watch.held.epoch,
            )

        await self._db.write(work)
        watch.fetching = True

    async def tell(
        self,
        watch: Watch,
        body: Fetched | Failed,
        *,
        at: float,
        answers: int = 0,
        told: Mapping[str, str] | None = None,
        seen: str | None = None,
    ) -> bool:
        """The rule that loses nothing: what is told now and the outcome that tells it, in one transaction.

        `answers`: fetch-nows that this outcome answers. False when the source has another epoch or was released.
        """
        held = watch.held
        if isinstance(body, Fetched):
            held = msgspec.structs.replace(held, batches=held.batches + 1, seen=held.seen if seen is None else seen)
        fetching = watch.fetching and told is None
        outcome = Outcome(0, watch.source, held.epoch, at, watch.next_look, body)

        async def work(tx: Tx) -> bool:
            current = await tx.rows(
                TELL,
                told=None if told is None else _encode(told),
                seen=held.seen,
                batches=held.batches,
                fetching=int(fetching),
                asked=int(watch.asks > answers),
                source=watch.source,
                epoch=held.epoch,
            )
            if not current:
                return False
            await _post(tx, outcome)
            await tx.rows(NOTE, **note_of(watch))
            return True

        if not await self._db.write(work):
            return False
        # (what an order changed meanwhile stays)
        watch.held = msgspec.structs.replace(watch.held, seen=held.seen, batches=held.batches)
        watch.fetching = fetching
        watch.asks -= answers
        self._posted()
        return True

    def note(self, watch: Watch) -> None:
        """Its schedule moved; written with the next `flush`."""
        self._noted[watch.source] = watch

    def rest(self, host: str, rest: Rest) -> None:
        self._resting[host] = rest

    async def rests(self) -> dict[str, Rest]:
        rows = await self._db.read("SELECT name, rests_until, pace FROM host")
        return {row["name"]: Rest(row["rests_until"], row["pace"]) for row in rows}

    async def checked(self) -> float | None:
        """Until when mirrors were checked, each in its turn; None: never."""
        rows = await self._db.read("SELECT value FROM meta WHERE name = 'checked'")
        return float(rows[0]["value"]) if rows else None

    async def note_checked(self, until: float) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows(META, name="checked", value=repr(until))

        await self._db.write(work, runtime=True)

    async def flush(self) -> None:
        """One write for all looks since the last: what it holds can be found out again."""
        if not (self._noted or self._resting or self._cells):
            return
        self._latest = latest = max(self._latest, self._clock.now())
        noted, resting, counted = self._noted, self._resting, self._cells
        self._noted, self._resting, self._cells = {}, {}, ()
        hosts: list[dict[str, Value]] = [
            {"name": name, "until": rest.until, "pace": rest.pace} for name, rest in resting.items()
        ]
        cells = msgspec.json.encode(counted).decode() if counted else ""

        async def work(tx: Tx) -> None:
            await tx.many(NOTE, [note_of(watch) for watch in noted.values()])
            await tx.many(REST, hosts)
            await tx.rows(META, name="latest", value=repr(latest))
            if cells:
                await tx.rows(META, name="cells", value=cells)

        try:
            await self._db.write(work, runtime=True)
        except BaseException:
            self._noted, self._resting = noted | self._noted, resting | self._resting
            self._cells = self._cells or counted
            raise

    async def look_now(self) -> None:
        """At everything: no mirror is where it was."""
        now = self._clock.now()
        await self._db.write(lambda tx: tx.rows("UPDATE look SET next_look = :now WHERE next_look > :now", now=now))

    async def set_back(self) -> None:
        """The clock was; whoever starts next learns of it."""
        await self._db.write(lambda tx: tx.rows(META, name="latest", value=repr(self._latest)))

    # the outbox

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        rows = await self._db.read(
            "SELECT n, body FROM outbox WHERE n > :after ORDER BY n LIMIT :limit", after=after, limit=limit
        )
        return [msgspec.structs.replace(_outcome(row["body"]), n=row["n"]) for row in rows]

    async def settle(self, numbers: Sequence[int]) -> None:
        """These have arrived."""

        async def work(tx: Tx) -> int:
            return sum([len(await tx.rows("DELETE FROM outbox WHERE n = :n RETURNING n", n=n)) for n in numbers])

        self._pending -= await self._db.write(work)

    def _posted(self) -> None:
        self._pending += 1
        self.on_outcome()


async def _follow_back(tx: Tx, now: float) -> None:
    """Where the clock was set back since this was written, times go back with it, or nothing would be due for long."""
    latest = await tx.rows("SELECT value FROM meta WHERE name = 'latest'")
    back = float(latest[0]["value"]) - now if latest else 0.0
    if back <= 0:
        return
    log.warning("the clock was set back; the schedule follows", extra={"seconds": round(back)})
    for statement in SET_BACK:
        await tx.rows(statement, back=back)
    await tx.rows("DELETE FROM meta WHERE name IN ('latest', 'checked')")


async def _post(tx: Tx, outcome: Outcome) -> None:
    """Numbered inside the transaction, so that numbers appear in the order of commits and a reader skips none."""
    counted = await tx.rows(COUNT, name="outbox")
    await tx.rows(OUTBOX, n=counted[0]["value"], body=_encode(outcome))
