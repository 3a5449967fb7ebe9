"""Places waiting tasks on workers, inside one transaction: rows in, the pure placement asked, rows out."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from skep.base.clock import Clock
from skep.fleet.api import Offer
from skep.storage.database import Database, Row, Statement, Tx, Value, struct_of, upsert
from skep.tasks import store
from skep.tasks.model import PACKAGE, Run
from skep.tasks.placement import Class, Worker, able, all_or_none, does, keep_for, keep_together, share, slot_of
from skep.tasks.selector import Facts, parse
from skep.tasks.transitions import ACTIVE_SQL, BUCKETS, WORK, Moving, bucket_of, spec_of

# What a placement is asked with, read inside its transaction: classes of waiting tasks, workers and their load.

READY_SQL = "state = 'WAITING' AND needs_left = 0 AND not_before <= :now"


async def ready_classes(tx: Tx, now: float, owned: str) -> list[Class]:
    """Those with something ready, the most urgent first, then the one that waits longest.

    The index of ready tasks is skipped through from class to class, so what it costs follows their number.
    """
    rows = await tx.rows(
        "WITH RECURSIVE waiting (class) AS ("  # noqa: S608
        "SELECT min(class) FROM task WHERE state = 'WAITING' AND needs_left = 0 UNION ALL "
        "SELECT (SELECT min(class) FROM task WHERE state = 'WAITING' AND needs_left = 0 AND class > waiting.class) "
        "FROM waiting WHERE waiting.class IS NOT NULL) "
        "SELECT * FROM (SELECT task_class.*, (SELECT id FROM task WHERE task.class = task_class.id "
        f"AND {READY_SQL} AND {owned} ORDER BY not_before, id LIMIT 1) AS oldest "
        "FROM waiting JOIN task_class ON task_class.id = waiting.class) AS classes "
        "WHERE oldest IS NOT NULL ORDER BY priority DESC, oldest",
        now=now,
    )
    return [struct_of(Class, row, holder=bool(row["holder"]), together=bool(row["together"])) for row in rows]


async def workers_for(tx: Tx, classes: Sequence[Class], since: float, only: str) -> list[Worker]:
    """Locked, so that no two transactions give away the same room."""
    members = await tx.rows(
        "SELECT id, offer FROM member WHERE role = 'worker' AND state = 'alive' AND last_alive >= :since "
        "AND (:only = '' OR id = :only) ORDER BY id FOR UPDATE",
        since=since,
        only=only,
    )
    active = await tx.rows(
        "SELECT worker, kind, context, exclusive, count(*) AS n FROM task "  # noqa: S608
        f"WHERE {ACTIVE_SQL} AND (:only = '' OR worker = :only) GROUP BY worker, kind, context, exclusive",
        only=only,
    )
    held = await _held(tx, classes)
    workers = {
        row["id"]: worker_of(row["id"], offer_of(row["offer"]), held.get(row["id"], frozenset())) for row in members
    }
    for row in active:
        worker = workers.get(row["worker"])
        if worker is not None:
            alike = Class(0, row["kind"], "", "", False, row["exclusive"], row["context"], False, 0)
            worker.give(alike, row["context"], row["n"])
    for worker in workers.values():
        worker.facts = {**worker.facts, "tasks": float(sum(worker.used.values()))}
    return list(workers.values())


def worker_of(member: str, offer: Offer, holds: frozenset[str]) -> Worker:
    return Worker(member, facts_of(member, offer, holds), frozenset(offer.kinds), offer.slots, holds=holds)


def facts_of(member: str, offer: Offer, holds: frozenset[str]) -> Facts:
    """What selectors see of a worker."""
    lists = {"tools": frozenset(offer.tools), "labels": frozenset(offer.labels), "holds": holds}
    return {**offer.facts, "id": member, **lists}


@lru_cache(maxsize=4096)
def offer_of(text: str) -> Offer:
    return msgspec.json.decode(text, type=Offer)


async def _held(tx: Tx, classes: Sequence[Class]) -> Mapping[str, frozenset[str]]:
    """Member -> which of the sources in question it holds, by id and by name."""
    wanted = {one.source for one in classes if one.source}.union(*(parse(one.selector).held for one in classes))
    held: dict[str, set[str]] = {}
    for source in wanted:
        rows = await tx.rows(
            "SELECT holding.member FROM holding LEFT JOIN source ON source.id = holding.source "
            "WHERE holding.member IS NOT NULL AND (holding.source = :source OR source.name = :source)",
            source=source,
        )
        for row in rows:
            held.setdefault(row["member"], set()).add(source)
    return {member: frozenset(sources) for member, sources in held.items()}


def why_waiting(one: Class, workers: Sequence[Worker]) -> str:
    """Said once for all tasks of the class."""
    if able(one, workers):
        return "every worker that could do it is busy"
    if not workers:
        return "no worker is attached"
    if not any(does(worker, one.kind) for worker in workers):
        if slot_of(one.kind) == "command":
            setting = "task_packages" if one.kind.startswith(PACKAGE) else "task_commands"
            return f"no worker may run {one.kind.rpartition(':')[2]!r}: see the setting {setting}"
        return f"no worker does tasks of kind {one.kind}"
    if one.holder and not any(one.source in worker.holds for worker in workers):
        return f"no attached worker holds {one.source}"
    return f"no worker matches the selector {one.selector!r}"


# Which tasks and contexts this coordinator acts on. Alone it acts on all; several divide them by key.
#
# Each says every few seconds that it is alive. A bucket belongs to the living coordinator with the highest hash for it,
# so when one dies only its own buckets move, and whoever gets them looks at everything in them.

STEPS = ["CREATE TABLE coordinator (id TEXT PRIMARY KEY, last_alive DOUBLE PRECISION NOT NULL)"]
BEAT_SECONDS = 2.0
#: beats that may fail to come before a coordinator counts as dead
_BEATS = 5


def owner_of(bucket: int, living: Sequence[str]) -> str:
    """Pure. The same answer everywhere for the same living ones."""
    return max(living, key=lambda one: hashlib.blake2b(f"{one}/{bucket}".encode(), digest_size=8).digest())


class Owners:
    def __init__(self, db: Database, id: str, beat_every: float = BEAT_SECONDS) -> None:
        self._db = db
        self._id = id
        self.beat_every = beat_every
        self._dead_after = _BEATS * beat_every
        self.owned = frozenset(range(BUCKETS)) if not db.shared else frozenset()

    async def start(self) -> None:
        await self._db.migrate("coordinators", STEPS)
        await self.beat()

    @property
    def alone(self) -> bool:
        return len(self.owned) == BUCKETS

    @property
    def sql(self) -> str:
        """A condition on `bucket`."""
        if self.alone:
            return "1 = 1"
        return f"bucket IN ({', '.join(map(str, sorted(self.owned))) or '-1'})"

    async def beat(self) -> frozenset[int]:
        """Say that this one lives; returns the buckets that are newly its own."""
        if not self._db.shared:
            return frozenset()
        now = await self._db.now()

        async def work(tx: Tx) -> list[str]:
            await upsert(tx, "coordinator", "id", id=self._id, last_alive=now)
            await tx.rows("DELETE FROM coordinator WHERE last_alive < :long_ago", long_ago=now - 100 * self._dead_after)
            rows = await tx.rows("SELECT id FROM coordinator WHERE last_alive >= :since", since=now - self._dead_after)
            return [row["id"] for row in rows]

        living = await self._db.write(work, runtime=True)
        before, self.owned = self.owned, frozenset(b for b in range(BUCKETS) if owner_of(b, living) == self._id)
        return self.owned - before

    async def leave(self) -> None:
        """A stop in good order gives the buckets away at once."""
        if self._db.shared:
            await self._db.write(lambda tx: tx.rows("DELETE FROM coordinator WHERE id = :id", id=self._id))


#: tasks placed in one transaction; the rest follows in the next
MOST_AT_ONCE = 1000
#: a worker that declined a task gets none for so long
DECLINED_SECONDS = 1.0


def runs_channel(worker: str) -> str:
    """Rung when what a worker should be running has changed."""
    return f"runs:{worker}"


class ScheduleTask(msgspec.Struct, frozen=True):
    """Tasks of a class wait for places, each for itself."""

    one: Class


class RunContext(msgspec.Struct, frozen=True):
    """Tasks of a context wait for places, all of them or none."""

    context: str
    group: list[Class]


class Placer:
    """What it remembers only saves looking: `forget` it whenever something may have changed, and nothing is wrong."""

    def __init__(self, clock: Clock, owners: Owners, lease: float) -> None:
        self._clock = clock
        self._owners = owners
        self._lease = lease
        #: worker -> the only class that had something ready when it was looked for this worker, and in which turn
        self._sole: dict[str, tuple[int, int]] = {}
        self._turn = 0
        self._resting: dict[str, float] = {}
        self._admitting = False

    def forget(self) -> None:
        """To be called once a change is committed: what was looked at before then is no longer believed."""
        self._turn += 1

    def rest(self, worker: str, now: float) -> None:
        """It declined a task, and would decline the next."""
        self._resting[worker] = now + DECLINED_SECONDS

    def owns(self, context: str) -> bool:
        return bucket_of(context) in self._owners.owned

    @contextmanager
    def at_once(self) -> Iterator[bool]:
        """True for one at a time: it may admit what it submits. Others leave that to the dispatcher, or they would all
        wait for each other at the workers' rows.
        """
        first, self._admitting = not self._admitting, True
        try:
            yield first
        finally:
            if first:
                self._admitting = False

    async def admit(self, tx: Tx, now: float) -> int:
        """Submitted tasks begin to wait, and those that can are placed; how many there were."""
        rows = await tx.rows(
            "UPDATE task SET state = 'WAITING', moves = moves || :head || attempt || :tail WHERE id IN "  # noqa: S608
            f"(SELECT id FROM task WHERE state = 'SUBMITTED' AND {self._owners.sql} LIMIT :most "
            "FOR UPDATE SKIP LOCKED) RETURNING id",
            head='["WAITING",',
            tail=f',"dispatcher","",{now:.6f}]\n',
            most=MOST_AT_ONCE,
        )
        if rows:
            await self.place(tx, now)
        return len(rows)

    async def admit_more(self, tx: Tx, now: float) -> int:
        """Some of a large context. They are placed by another transaction: this one holds the context's row, and who
        holds a worker's may be waiting for that."""
        return await store.admit(tx, self._owners.sql, now)

    async def place(self, tx: Tx, now: float) -> int:
        """How many tasks were given to workers, which are rung for."""
        runs = await self._look(tx, now, "")
        for worker in runs:
            tx.ring(runs_channel(worker))
        return sum(map(len, runs.values()))

    def next(self, worker: str, freed: Sequence[Moving], now: float) -> Statement | None:
        """Where only one class had anything ready, its tasks take each other's places without a further look: what
        fitted before fits now. Answers with the rows that were taken; None, or no rows: `refill`.
        """
        sole, turn = self._sole.get(worker, (0, -1))
        if turn != self._turn or now < self._resting.get(worker, 0.0) or any(task.class_id != sole for task in freed):
            return None
        return self._taking(sole, len(freed), worker, f"{worker} has room", now)

    async def refill(self, tx: Tx, worker: str, now: float) -> list[Run]:
        """Places of a worker became free: they are given away in the same transaction, and nobody is rung for."""
        self._sole.pop(worker, None)
        if now < self._resting.get(worker, 0.0):
            return []
        return (await self._look(tx, now, worker)).get(worker, [])

    async def _look(self, tx: Tx, now: float, only: str) -> dict[str, list[Run]]:
        turn, given = self._turn, dict[str, list[Run]]()
        classes = await ready_classes(tx, now, self._owners.sql)
        if not classes:
            return given
        workers = await workers_for(tx, classes, now - self._lease, only)
        for worker in workers:
            if now < self._resting.get(worker.id, 0.0):
                worker.slots = {}
        for message in await _messages(tx, classes):
            match message:
                case ScheduleTask(one):
                    await self._spread(tx, one, workers, now, given, quiet=bool(only))
                case RunContext() if only:
                    break  # who comes next is seen only with all workers in view
                case RunContext(context, group):
                    await self._all_or_none(tx, context, group, workers, now, given)
        if only and len(classes) == 1 and self._owners.alone:
            self._remember(classes[0], workers, turn)
        return given

    def _remember(self, one: Class, workers: Sequence[Worker], turn: int) -> None:
        for worker in workers:
            if one.exclusive == "none" and not one.together and worker.alone is None:
                self._sole[worker.id] = (one.id, turn)

    async def _spread(
        self, tx: Tx, one: Class, workers: Sequence[Worker], now: float, given: dict[str, list[Run]], *, quiet: bool
    ) -> None:
        fits = [worker for worker in able(one, workers) if worker.room(one)]
        why = "holds the source" if one.source else "has room"
        if not fits:
            keep_for(one, workers)
            if one.holder and await _orphaned(tx, one):
                return
            if not quiet:
                await _say(tx, one, why_waiting(one, workers))
            return
        room = min(MOST_AT_ONCE, sum(worker.room(one) for worker in fits))
        if len(fits) == 1:  # one laptop
            runs = await self._take(tx, one.id, room, fits[0].id, f"{fits[0].id} {why}", now)
            if runs:
                fits[0].give(one, count=len(runs))
                given.setdefault(fits[0].id, []).extend(runs)
            return
        count = await self._count(tx, one, room, now)
        for worker, number in share(one, count, fits, self._clock.random).items():
            given.setdefault(worker, []).extend(await self._take(tx, one.id, number, worker, f"{worker} {why}", now))

    async def _count(self, tx: Tx, one: Class, most: int, now: float) -> int:
        rows = await tx.rows(
            f"SELECT count(*) AS n FROM (SELECT id FROM task WHERE class = :class AND {READY_SQL} "  # noqa: S608
            f"AND {self._owners.sql} LIMIT :most) AS ready",
            **{"class": one.id},
            now=now,
            most=most,
        )
        return int(rows[0]["n"])

    async def _all_or_none(
        self,
        tx: Tx,
        context: str,
        group: Sequence[Class],
        workers: Sequence[Worker],
        now: float,
        given: dict[str, list[Run]],
    ) -> None:
        ready = Counter(
            row["class"]
            for row in await tx.rows(
                f"SELECT class FROM task WHERE context = :context AND {READY_SQL} ORDER BY id FOR UPDATE",  # noqa: S608
                context=context,
                now=now,
            )
        )
        unended = await tx.rows("SELECT unended FROM context WHERE id = :id", id=context)
        if not unended or unended[0]["unended"] != ready.total():
            return  # some are still on their way here
        wanted = [(one, ready[one.id]) for one in group]
        plan = all_or_none(wanted, workers)
        if plan is None:
            keep_together(context, wanted, workers)
        for one in group:
            if plan is None:
                await _say(tx, one, f"its context wants {ready.total()} places at once, and there are not so many")
                continue
            for worker, number in plan[one.id].items():
                why = f"{worker} has room, and all of its context have a place"
                given.setdefault(worker, []).extend(await self._take(tx, one.id, number, worker, why, now))

    async def _take(self, tx: Tx, class_: int, count: int, worker: str, why: str, now: float) -> list[Run]:
        sql, params = self._taking(class_, count, worker, why, now)
        return [run_of(row) for row in await tx.rows(sql, **params)]

    def _taking(self, class_: int, count: int, worker: str, why: str, now: float) -> Statement:
        """The oldest ready tasks of a class become this worker's."""
        sql = (
            "UPDATE task SET state = 'SCHEDULED', worker = :worker, attempt = attempt + 1, not_before = 0, "  # noqa: S608
            "reason = '', moves = moves || :head || (attempt + 1) || :tail WHERE id IN (SELECT id FROM task "
            f"WHERE class = :class AND {READY_SQL} AND {self._owners.sql} ORDER BY not_before, id LIMIT :most "
            "FOR UPDATE SKIP LOCKED) RETURNING id, attempt, context, name, failures, retries, spec"
        )
        tail = f',"dispatcher",{msgspec.json.encode(why).decode()},{now:.6f}]\n'
        params: dict[str, Value] = {
            "class": class_,
            "worker": worker,
            "head": '["SCHEDULED",',
            "tail": tail,
            "now": now,
            "most": count,
        }
        return sql, params


def run_of(row: Row) -> Run:
    return Run(row["id"], row["attempt"], row["context"], row["name"], spec_of(row), row["failures"] >= row["retries"])


async def _messages(tx: Tx, classes: Sequence[Class]) -> list[ScheduleTask | RunContext]:
    """In the order of the classes. Of a context that was placed together, what is tried again is a task like others."""
    messages: list[ScheduleTask | RunContext] = []
    begun: dict[str, bool] = {}
    for one in classes:
        gang = one.context if one.together else ""
        if gang and gang not in begun:
            begun[gang] = await _begun(tx, gang)
            if not begun[gang]:
                group = [other for other in classes if other.together and other.context == gang]
                messages.append(RunContext(gang, group))
        if not gang or begun[gang]:
            messages.append(ScheduleTask(one))
    return messages


async def _begun(tx: Tx, context: str) -> bool:
    rows = await tx.rows(f"SELECT id FROM task WHERE context = :c AND {ACTIVE_SQL} LIMIT 1", c=context)  # noqa: S608
    return bool(rows)


async def _say(tx: Tx, one: Class, reason: str) -> None:
    await tx.rows(
        "UPDATE task_class SET reason = :reason WHERE id = :id AND reason <> :reason", id=one.id, reason=reason
    )


async def _orphaned(tx: Tx, one: Class) -> bool:
    """Only the holder of a source may do these, and the source was removed: nobody ever will."""
    if await tx.rows("SELECT 1 AS one FROM holding WHERE source = :source", source=one.source):
        return False
    await tx.rows(
        "UPDATE task SET abort_by = 'skep: its source was removed' WHERE class = :class AND state = 'WAITING'",
        **{"class": one.id},
    )
    tx.ring(WORK)
    return True
