"""Rules: which there are. What makes them fire is in `triggers`."""

import logging
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.base.ids import new_id
from skep.rules.api import Fired, Occasion, Rule, RuleEdit, RuleSpec
from skep.rules.matching import Matcher, check, composed
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value, insert, one_row, update, upsert
from skep.tasks.contexts import Contexts, abort_context
from skep.tasks.model import Context
from skep.tasks.store import create
from skep.topics.api import Part
from skep.topics.service import CHANGES, Topics

# A rule fires, inside a transaction: once for each cause, however often it is told.

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


log = logging.getLogger(__name__)

MOST_RULES = 10_000
#: rung when rules were made or changed
CHANGED = "rules"
_WITH_LAST = (
    "SELECT rule.*, fired.context, fired.cause, fired.at FROM rule LEFT JOIN fired ON fired.rule = rule.name "
    "AND fired.cause = (SELECT cause FROM fired AS newest WHERE newest.rule = rule.name ORDER BY at DESC LIMIT 1)"
)


class Active(msgspec.Struct, frozen=True):
    """A rule as triggers use it."""

    matcher: Matcher
    #: whoever made it sees private sources
    private: bool
    #: changes below this offset were there before it
    since: int
    #: minutes up to this were there before it
    since_at: float

    @property
    def spec(self) -> RuleSpec:
        return self.matcher.spec


class Rules:
    def __init__(self, db: Database, clock: Clock, topics: Topics, sources: Sources, contexts: Contexts) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._sources = sources
        self._contexts = contexts

    async def start(self, file: Sequence[RuleSpec] = ()) -> None:
        """`file` are the rules of `skep.toml`: those there are no longer go, and they win over others of their name."""
        await self._db.migrate("rules", STEPS)
        specs = {check(spec).spec.name: spec for spec in file}
        if len(specs) < len(file):
            raise BadInput("two rules of skep.toml have the same name", hint=f"there are: {', '.join(sorted(specs))}")

        end = await self._end()

        async def work(tx: Tx) -> None:
            known = {row["name"]: row for row in await tx.rows("SELECT * FROM rule FOR UPDATE")}
            for name, row in known.items():
                if row["origin"] == "file" and name not in specs:
                    await _remove(tx, name)
            for name, spec in specs.items():
                if name not in known:
                    await self._insert(tx, spec, "file", True, end)
                    continue
                if known[name]["origin"] != "file":
                    log.warning("rule %s of skep.toml takes the place of another", name)
                await self._update(tx, spec, "file", True, end, known[name])

        await self._db.write(work)

    async def create(self, caller: Caller, spec: RuleSpec) -> Rule:
        """For what changes from now on."""
        caller.need("write")
        check(spec)
        end = await self._end()

        async def work(tx: Tx) -> None:
            count = await tx.rows("SELECT count(*) AS n FROM rule")
            if count[0]["n"] >= MOST_RULES:
                raise Conflict(f"there are {MOST_RULES:,} rules already", hint="remove some, or let one match more")
            if not await self._insert(tx, spec, "api", caller.sees("private"), end):
                raise Conflict(f"there is a rule {spec.name!r} already", hint="change it, or choose another name")
            await note(tx, self._clock.now(), caller, "rule.create", spec.name)

        await self._db.write(work)
        return await self._rule(spec.name)

    async def update(self, caller: Caller, name: str, edit: RuleEdit) -> Rule:
        caller.need("write")
        end = await self._end()
        given = {field: value for field, value in msgspec.structs.asdict(edit).items() if value is not None}

        async def work(tx: Tx) -> None:
            row = await _own(tx, name)
            spec = msgspec.structs.replace(_matcher(row["spec"]).spec, **given)
            check(spec)
            # switching it on or off decides nothing; else it sees what its new author sees
            private = bool(row["private"]) if given.keys() <= {"enabled"} else caller.sees("private")
            await self._update(tx, spec, "api", private, end, row)
            await note(tx, self._clock.now(), caller, "rule.update", name)

        await self._db.write(work)
        return await self._rule(name)

    async def show(self, caller: Caller, name: str) -> Rule:
        caller.need("read")
        return await self._rule(name)

    async def remove(self, caller: Caller, name: str) -> None:
        """Contexts it has made stay."""
        caller.need("write")

        async def work(tx: Tx) -> None:
            await _own(tx, name)
            await _remove(tx, name)
            await note(tx, self._clock.now(), caller, "rule.remove", name)

        await self._db.write(work)

    async def fire(self, caller: Caller, name: str, source: str = "") -> Context:
        """Now, whatever its patterns say: for the newest commit of a source, or as the clock would."""
        caller.need("write")
        rule = await self._rule(name)
        occasion = Occasion()
        if source:
            found = await self._sources.show(caller, source)
            newest = await self._sources.newest(found)
            if newest is None:
                raise Conflict(f"{found.name} has no commits yet", hint="wait until it is mirrored")
            shown = found.name if found.visibility == "public" else ""
            occasion = Occasion(found.id, shown, f"refs/heads/{found.default_branch}", "", newest)
        elif not rule.spec.cron:
            raise BadInput(f"rule {name!r} fires for changes", hint="name a source to fire it for")
        now = self._clock.now()

        async def work(tx: Tx) -> str:
            id = await fire_by_hand(tx, rule.spec, occasion, caller, now)
            await note(tx, now, caller, "rule.fire", f"{name} {id}")
            return id

        id = await self._db.write(work)
        return (await self._contexts.show(SYSTEM, id, limit=0)).context

    async def active(self) -> list[Active]:
        rows = await self._db.read("SELECT * FROM rule ORDER BY name")
        found = [Active(_matcher(row["spec"]), bool(row["private"]), row["since"], row["since_at"]) for row in rows]
        return [rule for rule in found if rule.spec.enabled]

    async def _end(self) -> int:
        return (await self._topics.log.bounds(Part(CHANGES)))[1]

    async def _insert(self, tx: Tx, spec: RuleSpec, origin: str, private: bool, end: int) -> bool:
        """False: the name is taken."""
        tx.ring(CHANGED)
        once, now = "ON CONFLICT (name) DO NOTHING RETURNING name", self._clock.now()
        row = _values(spec, origin, private)
        return bool(await insert(tx, "rule", once, since=end, since_at=now, created_at=now, **row))

    async def _update(self, tx: Tx, spec: RuleSpec, origin: str, private: bool, end: int, before: Row) -> None:
        """A rule switched on, or given other times, begins now."""
        old = _matcher(before["spec"]).spec
        same = (old.enabled, old.cron) == (spec.enabled, spec.cron)
        since, at = (before["since"], before["since_at"]) if same else (end, self._clock.now())
        await update(tx, "rule", "name", since=since, since_at=at, **_values(spec, origin, private))
        tx.ring(CHANGED)

    async def _rule(self, name: str) -> Rule:
        rows = await self._db.read(f"{_WITH_LAST} WHERE rule.name = :name", name=name)
        return _rule_of(one_row(rows, _unknown(name)))

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100) -> Page[Rule]:
        caller.need("read")
        rows = await self._db.read(
            f"{_WITH_LAST} WHERE rule.name > :page ORDER BY rule.name LIMIT :limit", page=page, limit=limit + 1
        )
        items = [_rule_of(row) for row in rows[:limit]]
        return Page(items, items[-1].spec.name if len(rows) > limit else "")


async def _own(tx: Tx, name: str) -> Row:
    """A rule that may be changed here."""
    rows = await tx.rows("SELECT * FROM rule WHERE name = :name FOR UPDATE", name=name)
    row = one_row(rows, _unknown(name))
    if row["origin"] == "file":
        raise NotAllowed(f"rule {name!r} comes from skep.toml", hint="change it there and start Skep again")
    return row


async def _remove(tx: Tx, name: str) -> None:
    await tx.rows("DELETE FROM rule WHERE name = :name", name=name)
    await tx.rows("DELETE FROM fired WHERE rule = :name", name=name)
    await tx.rows("DELETE FROM owed WHERE rule = :name", name=name)


def _values(spec: RuleSpec, origin: str, private: bool) -> dict[str, Any]:
    return {"name": spec.name, "origin": origin, "private": int(private), "spec": msgspec.json.encode(spec)}


@lru_cache(maxsize=MOST_RULES)
def _matcher(spec: bytes) -> Matcher:
    return Matcher(msgspec.json.decode(spec, type=RuleSpec))


def _rule_of(row: Row) -> Rule:
    last = None if row["at"] is None else Fired(row["context"], row["cause"], row["at"])
    return Rule(_matcher(row["spec"]).spec, row["origin"], row["created_at"], last)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no rule {name[:80]!r}", hint="`skep rule list` shows those there are")
