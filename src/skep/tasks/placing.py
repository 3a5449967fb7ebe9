"""Places waiting tasks on workers, inside one transaction: rows in, the pure placement asked, rows out."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from skep.engines.db.base import Row, Tx
from skep.model.member import Offer
from skep.tasks.moves import COLUMNS, Moving
from skep.tasks.placement import Class, Worker, able, all_or_none, share
from skep.tasks.selector import Facts, parse
from skep.tasks.tables import ACTIVE_SQL, line

#: tasks placed in one transaction; the rest follows in the next
MOST_AT_ONCE = 1000
_READY = "state = 'WAITING' AND needs_left = 0 AND not_before <= :now"
_SCHEDULE = (
    "UPDATE task SET state = 'SCHEDULED', worker = :worker, attempt = attempt + 1, not_before = 0, reason = '', "
    "moves = moves || :line WHERE id = :id"
)


def runs_channel(worker: str) -> str:
    """Rung when what a worker should be running has changed."""
    return f"runs:{worker}"


async def place(
    tx: Tx, now: float, random: Callable[[], float], *, owned: str, since: float, only: str = ""
) -> dict[str, int]:
    """Worker -> tasks it was given now. `since`: workers silent for longer get nothing. `only`: this worker alone."""
    classes = await _classes(tx, now, owned)
    if not classes:
        return {}
    workers = await _workers(tx, classes, since, only)
    given: dict[str, int] = {}
    together: dict[str, list[Class]] = {}
    for one in classes:
        if one.together and not only and not await _begun(tx, one.context):
            together.setdefault(one.context, []).append(one)
            continue
        most = min(MOST_AT_ONCE, sum(worker.room(one) for worker in able(one, workers)))
        if not most:
            if not only:
                await _explain(tx, one, workers)
            continue
        rows = await _ready(tx, one, now, owned, most)
        await _give(tx, one, rows, share(one, len(rows), workers, random), now, given)
    for context, group in together.items():
        await _all_or_none(tx, context, group, workers, now, owned, given)
    for worker in given:
        tx.ring(runs_channel(worker))
    return given


async def _classes(tx: Tx, now: float, owned: str) -> list[Class]:
    """Those with something ready, the most urgent first, then the one that waits longest.

    The index of ready tasks is skipped through from class to class, so what it costs follows their number.
    """
    rows = await tx.rows(
        "WITH RECURSIVE waiting (class) AS ("  # noqa: S608
        "SELECT min(class) FROM task WHERE state = 'WAITING' AND needs_left = 0 UNION ALL "
        "SELECT (SELECT min(class) FROM task WHERE state = 'WAITING' AND needs_left = 0 AND class > waiting.class) "
        "FROM waiting WHERE waiting.class IS NOT NULL) "
        "SELECT * FROM (SELECT task_class.*, (SELECT id FROM task WHERE task.class = task_class.id "
        f"AND {_READY} AND {owned} ORDER BY not_before, id LIMIT 1) AS oldest "
        "FROM waiting JOIN task_class ON task_class.id = waiting.class) AS classes "
        "WHERE oldest IS NOT NULL ORDER BY priority DESC, oldest",
        now=now,
    )
    return [
        Class(
            row["id"],
            row["kind"],
            row["selector"],
            row["source"],
            bool(row["holder"]),
            row["exclusive"],
            row["context"],
            bool(row["together"]),
            row["priority"],
        )
        for row in rows
    ]


async def _workers(tx: Tx, classes: Sequence[Class], since: float, only: str) -> list[Worker]:
    """Locked, so that two coordinators do not give away the same room."""
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
    workers = {row["id"]: _worker(row, held.get(row["id"], frozenset())) for row in members}
    for row in active:
        worker = workers.get(row["worker"])
        if worker is not None:
            alike = Class(0, row["kind"], "", "", False, row["exclusive"], row["context"], False, 0)
            worker.give(alike, row["context"], row["n"])
    return list(workers.values())


def _worker(row: Row, holds: frozenset[str]) -> Worker:
    offer = offer_of(row["offer"])
    facts = facts_of(row["id"], offer, holds)
    return Worker(row["id"], facts, frozenset(offer.kinds), offer.slots, holds=holds)


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


async def _ready(tx: Tx, one: Class, now: float, owned: str, most: int) -> list[Row]:
    return await tx.rows(
        f"SELECT id, attempt FROM task WHERE class = :class AND {_READY} AND {owned} "  # noqa: S608
        "ORDER BY not_before, id LIMIT :most FOR UPDATE SKIP LOCKED",
        **{"class": one.id},
        now=now,
        most=most,
    )


async def _give(
    tx: Tx, one: Class, rows: Sequence[Row], shares: Mapping[str, int], now: float, given: dict[str, int]
) -> None:
    places = [worker for worker, count in shares.items() for _ in range(count)]
    why = "holds the source" if one.source else "has room"
    await tx.many(
        _SCHEDULE,
        [
            {
                "id": row["id"],
                "worker": worker,
                "line": line("SCHEDULED", row["attempt"] + 1, "dispatcher", f"{worker} {why}", now),
            }
            for row, worker in zip(rows, places, strict=False)
        ],
    )
    for worker, count in shares.items():
        given[worker] = given.get(worker, 0) + count


async def _begun(tx: Tx, context: str) -> bool:
    rows = await tx.rows(f"SELECT id FROM task WHERE context = :c AND {ACTIVE_SQL} LIMIT 1", c=context)  # noqa: S608
    return bool(rows)


async def _all_or_none(
    tx: Tx,
    context: str,
    group: Sequence[Class],
    workers: Sequence[Worker],
    now: float,
    owned: str,
    given: dict[str, int],
) -> None:
    ready = {one.id: await _ready(tx, one, now, owned, MOST_AT_ONCE) for one in group}
    unended = await tx.rows("SELECT unended FROM context WHERE id = :id", id=context)
    if not unended or unended[0]["unended"] != sum(map(len, ready.values())):
        return  # some are still on their way here
    plan = all_or_none([(one, len(ready[one.id])) for one in group], workers)
    for one in group:
        if plan is None:
            count = sum(map(len, ready.values()))
            await _say(tx, one, f"its context wants {count} places at once, and there are not so many")
        else:
            await _give(tx, one, ready[one.id], plan[one.id], now, given)


async def _explain(tx: Tx, one: Class, workers: Sequence[Worker]) -> None:
    """Why tasks of this class wait: said once for all of them."""
    if able(one, workers):
        reason = "every worker that could do it is busy"
    elif not workers:
        reason = "no worker is attached"
    elif not any(one.kind in worker.kinds for worker in workers):
        reason = f"no worker does tasks of kind {one.kind}"
    elif one.holder and not any(one.source in worker.holds for worker in workers):
        reason = f"no attached worker holds {one.source}"
    else:
        reason = f"no worker matches the selector {one.selector!r}"
    await _say(tx, one, reason)


async def _say(tx: Tx, one: Class, reason: str) -> None:
    await tx.rows(
        "UPDATE task_class SET reason = :reason WHERE id = :id AND reason <> :reason", id=one.id, reason=reason
    )


async def active_of(tx: Tx, worker: str) -> dict[str, Moving]:
    rows = await tx.rows(
        f"SELECT {COLUMNS} FROM task WHERE worker = :worker AND {ACTIVE_SQL} ORDER BY id FOR UPDATE",  # noqa: S608
        worker=worker,
    )
    return {row["id"]: Moving(row) for row in rows}
