"""What a placement is asked with, read inside its transaction: classes of waiting tasks, workers and their load."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from skep.engines.db.base import Tx, struct_of
from skep.model.member import Offer
from skep.model.task import PACKAGE
from skep.tasks.placement import Class, Worker, able, does, slot_of
from skep.tasks.selector import Facts, parse
from skep.tasks.tables import ACTIVE_SQL

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
