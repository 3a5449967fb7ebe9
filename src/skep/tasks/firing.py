"""A rule fires, inside a transaction: once for each cause, however often it is told."""

import time

import msgspec

from skep.engines.db.base import Tx, Value, insert, upsert
from skep.model.caller import Caller
from skep.model.ids import new_id
from skep.model.rule import Occasion, RuleSpec
from skep.tasks.contexts import abort_context
from skep.tasks.matching import composed
from skep.tasks.storing import create

STEPS = [
    """
    CREATE TABLE rule (
        name TEXT PRIMARY KEY, origin TEXT NOT NULL, private BIGINT NOT NULL, spec BYTEA NOT NULL,
        since BIGINT NOT NULL, since_at DOUBLE PRECISION NOT NULL, created_at DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE fired (
        rule TEXT NOT NULL, cause TEXT NOT NULL, context TEXT NOT NULL, source TEXT NOT NULL, ref TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL, PRIMARY KEY (rule, cause)
    );
    CREATE INDEX fired_at ON fired (rule, at);
    CREATE INDEX fired_source ON fired (rule, source, ref);
    CREATE TABLE owed (
        rule TEXT NOT NULL, batch TEXT NOT NULL, n BIGINT NOT NULL, source TEXT NOT NULL, ref TEXT NOT NULL,
        occasions BYTEA NOT NULL, tried_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (rule, batch)
    );
    CREATE INDEX owed_tried ON owed (tried_at, n);
    CREATE INDEX owed_source ON owed (rule, source, ref)
    """
]
#: how long it is remembered what a rule fired for; a repeat comes within minutes, if at all
_KEEP = 30 * 86_400.0


class Firing(msgspec.Struct, frozen=True):
    spec: RuleSpec
    occasion: Occasion
    cause: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What a newer one of the same rule takes over."""
        return self.spec.name, self.occasion.source, self.occasion.ref


def by_change(spec: RuleSpec, occasion: Occasion) -> Firing:
    return Firing(spec, occasion, f"change:{occasion.batch}")


def by_clock(spec: RuleSpec, due: float) -> Firing:
    return Firing(spec, Occasion(), time.strftime("clock:%Y-%m-%dT%H:%MZ", time.gmtime(due)))


async def fire(tx: Tx, firing: Firing, now: float) -> str | None:
    """The context's id; None when the rule has fired for this cause before."""
    name, source, ref = firing.place
    row: dict[str, Value] = {
        "rule": name,
        "cause": firing.cause,
        "context": "",
        "source": source,
        "ref": ref,
        "at": now,
    }
    if not await insert(tx, "fired", "ON CONFLICT (rule, cause) DO NOTHING RETURNING rule", **row):
        return None
    if firing.spec.latest:
        await _supersede(tx, firing)
    spec, tasks = composed(firing.spec, firing.occasion)
    once = f"rule:{name}:{firing.cause.partition(':')[2]}"
    context = await create(tx, new_id("ctx", now), spec, tasks, firing.cause, once, now)
    sql = "UPDATE fired SET context = :context WHERE rule = :rule AND cause = :cause"
    await tx.rows(sql, context=context, rule=name, cause=firing.cause)
    await tx.rows("DELETE FROM fired WHERE rule = :rule AND at < :old", rule=name, old=now - _KEEP)
    return context


async def fire_by_hand(tx: Tx, spec: RuleSpec, occasion: Occasion, caller: Caller, now: float) -> str:
    """As often as somebody asks; only the newest of each person is remembered."""
    context, tasks = composed(spec, occasion)
    cause = f"person:{caller.subject}"
    id = await create(tx, new_id("ctx", now), context, tasks, cause, "", now)
    about: dict[str, Value] = {"source": occasion.source, "ref": occasion.ref}
    await upsert(tx, "fired", "rule, cause", rule=spec.name, cause=cause, context=id, at=now, **about)
    return id


async def _supersede(tx: Tx, firing: Firing) -> None:
    """Whatever of this rule still runs for an older state of the same ref."""
    name, source, ref = firing.place
    running = await tx.rows(
        "SELECT context.id FROM fired JOIN context ON context.id = fired.context WHERE fired.rule = :rule "
        "AND fired.source = :source AND fired.ref = :ref AND context.state = 'RUNNING' ORDER BY context.id",
        rule=name,
        source=source,
        ref=ref,
    )
    for row in running:
        await abort_context(tx, row["id"], Caller(f"rule {name}", frozenset()), f"{firing.cause} is newer")
