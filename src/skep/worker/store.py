"""What a worker must not forget: its name, what it holds, what it has told, outcomes nobody has acknowledged yet."""

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx, Value
from skep.link.messages import Failed, Fetched, FetchNow, Hold, Order, Outcome, Release
from skep.model.ids import new_id
from skep.schedule.cadence import Bounds
from skep.schedule.hosts import Rest
from skep.schedule.policy import CELL, Cell, Counted
from skep.worker import tables
from skep.worker.rows import hold, note_of, watch_of
from skep.worker.watch import Watch

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
        await self._db.migrate("worker", tables.STEPS)
        self._latest = now = self._clock.now()
        fresh = new_id("wrk", now)

        async def work(tx: Tx) -> tuple[int, str]:
            boot = await tx.rows(tables.BOOT, now=int(now * 1000))
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
        rows = await self._db.read(tables.NEXT, after=after[0], source=after[1], limit=limit)
        return [watch_of(row) for row in rows]

    async def watch(self, source: str, *, released: bool = False) -> Watch | None:
        sql = tables.WATCH + " WHERE look.source = :source AND released = :released"
        rows = await self._db.read(sql, released=int(released), source=source)
        return watch_of(rows[0]) if rows else None

    async def released(self) -> list[Watch]:
        return [watch_of(row) for row in await self._db.read(tables.WATCH + " WHERE released = 1")]

    async def cells(self) -> list[Counted]:
        """As they were last kept; where there was no budget before, they are counted."""
        if kept := await self._db.read("SELECT value FROM meta WHERE name = 'cells'"):
            return msgspec.json.decode(kept[0]["value"], type=list[Counted])
        rows = await self._db.read(tables.CELLS, width=CELL)
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
                tables.TELL,
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
            await tx.rows(tables.NOTE, **note_of(watch))
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
            await tx.rows(tables.META, name="checked", value=repr(until))

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
            await tx.many(tables.NOTE, [note_of(watch) for watch in noted.values()])
            await tx.many(tables.REST, hosts)
            await tx.rows(tables.META, name="latest", value=repr(latest))
            if cells:
                await tx.rows(tables.META, name="cells", value=cells)

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
        await self._db.write(lambda tx: tx.rows(tables.META, name="latest", value=repr(self._latest)))

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
    for statement in tables.SET_BACK:
        await tx.rows(statement, back=back)
    await tx.rows("DELETE FROM meta WHERE name IN ('latest', 'checked')")


async def _post(tx: Tx, outcome: Outcome) -> None:
    """Numbered inside the transaction, so that numbers appear in the order of commits and a reader skips none."""
    counted = await tx.rows(tables.COUNT, name="outbox")
    await tx.rows(tables.OUTBOX, n=counted[0]["value"], body=_encode(outcome))
