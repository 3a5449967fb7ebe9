"""What makes rules fire: a reader of `skep.changes` with a stored place, and the clock.

Contexts, what they were fired for and the place are one transaction, and the place moves only from where it was read.
So it happens once, whoever is killed and however many coordinators read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput, SkepError
from skep.rules.api import Occasion, RuleSpec
from skep.rules.matching import Matcher, Told, composed
from skep.rules.service import CHANGED, Active, Firing, Rules, by_change, by_clock, fire
from skep.sources.catalogue import living
from skep.sources.model import Source
from skep.storage.database import Database, Row, Tx, Value, insert
from skep.topics.api import Message, Part
from skep.topics.service import CHANGES, Topics

log = logging.getLogger(__name__)

READER = "skep.rules"
_PAGE = 1000
#: contexts made in one transaction, unless one batch fires more rules
_AT_ONCE = 100
#: refs of one batch whose paths are looked at; beyond that it counts as if one fitted
_MOST_REFS = 64
_OWED_AT_ONCE = 100
_OWED_SECONDS = 10.0
_NAP = 30.0

#: source, old and new commit -> paths that differ; None: any may
Paths = Callable[[str, str, str], Awaitable[Sequence[str] | None]]
_told = msgspec.json.Decoder(Told).decode
_occasions = msgspec.json.Decoder(list[Occasion]).decode


class Batch(msgspec.Struct):
    """The changes of one fetch; a huge one may come in pieces."""

    changes: list[Told]
    #: offset after its last change
    next: int

    @property
    def source(self) -> str:
        return self.changes[0].source


class Owed(msgspec.Struct, frozen=True):
    """A rule may have to fire, but the mirror that would tell could not be read."""

    spec: RuleSpec
    occasions: list[Occasion]
    #: offset after the batch
    n: int


class Triggers:
    def __init__(self, db: Database, clock: Clock, topics: Topics, rules: Rules, paths: Paths) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._rules = rules
        self._paths = paths
        self._looked = 0.0

    async def follow(self) -> None:
        """Changes, until cancelled."""
        async with self._topics.listen(CHANGES) as bell:
            while True:
                if not await self.step():
                    await bell.wait(_NAP)

    async def follow_clock(self) -> None:
        """Due minutes, and what is owed, until cancelled."""
        async with self._db.listen(CHANGED) as bell:
            while True:
                await self.tick()
                owed = await self.settle()
                next_minute = 60.0 - self._clock.now() % 60.0
                await bell.wait(min(next_minute, _OWED_SECONDS) if owed else next_minute)

    async def step(self) -> bool:
        """A page of changes; False when there is none."""
        place = await self._topics.place(READER, CHANGES)
        messages = await self._topics.log.read(Part(CHANGES), place, _PAGE)
        if not messages:
            return False
        rules = [rule for rule in await self._rules.active() if rule.matcher.cron is None]
        due: dict[object, Firing | Owed] = {}
        batches = list(grouped(messages, full=len(messages) == _PAGE))
        about = {id: await self._about(rules, id) for id in {batch.source for batch in batches}} if rules else {}
        for batch in batches:
            for one in await self._due(about[batch.source], batch) if rules else ():
                # of a rule that wants the latest only, the older ones need not begin
                key = one.place if isinstance(one, Firing) and one.spec.latest else (one.spec.name, batch.next)
                due.pop(key, None)
                due[key] = one
            if len(due) >= _AT_ONCE or batch is batches[-1]:
                if not await self._commit(list(due.values()), place, batch.next):
                    break
                place, due = batch.next, {}
        return True

    async def _about(self, rules: Sequence[Active], id: str) -> list[tuple[Active, Source]]:
        """The rules that a source concerns: asked once for a page, as there may be many of both."""
        source = await living(self._db, id)
        if source is None:
            return []
        return [(rule, source) for rule in rules if _sees(rule, source) and rule.matcher.about(source)]

    async def _due(self, about: Sequence[tuple[Active, Source]], batch: Batch) -> list[Firing | Owed]:
        due: list[Firing | Owed] = []
        seen: dict[tuple[str, str], Sequence[str] | None] = {}
        for rule, source in about:
            if rule.since >= batch.next:
                continue
            occasions = rule.matcher.candidates(source, batch.changes)
            try:
                found = await self._touching(rule.matcher, occasions, seen)
            except SkepError as error:
                log.warning("a rule waits for a mirror", extra={"rule": rule.spec.name, "reason": error.message})
                due.append(Owed(rule.spec, occasions, batch.next))
                continue
            if found is not None and _composes(rule.spec, found):
                due.append(by_change(rule.spec, found))
        return due

    async def _touching(
        self, matcher: Matcher, occasions: Sequence[Occasion], seen: dict[tuple[str, str], Sequence[str] | None]
    ) -> Occasion | None:
        """The first whose paths fit."""
        if not matcher.wants_paths or len(occasions) > _MOST_REFS:
            return occasions[0] if occasions else None
        for one in occasions:
            if (one.old, one.new) not in seen:
                seen[one.old, one.new] = await self._paths(one.source, one.old, one.new)
            if await asyncio.to_thread(matcher.touched, seen[one.old, one.new]):
                return one
        return None

    async def _commit(self, due: Sequence[Firing | Owed], place: int, next: int) -> bool:
        """False: another coordinator was faster, and has done all this."""
        now = self._clock.now()

        async def work(tx: Tx) -> bool:
            if not await self._topics.advance(tx, READER, CHANGES, place, next):
                return False
            for one in due:
                if isinstance(one, Owed):
                    await _owe(tx, one, now)
                    continue
                if one.spec.latest:
                    await _forgive(tx, one)
                await fire(tx, one, now)
            return True

        return await self._db.write(work)

    async def settle(self) -> bool:
        """Look again at mirrors that could not be read; True while some still cannot."""
        rows = await self._db.read("SELECT * FROM owed ORDER BY tried_at, n LIMIT :most", most=_OWED_AT_ONCE)
        if not rows:
            return False
        now = self._clock.now()
        rules = {rule.spec.name: rule for rule in await self._rules.active()}
        unreadable: set[str] = set()
        for row in rows:
            rule = rules.get(row["rule"])
            found = None
            if rule is not None and await living(self._db, row["source"]) is not None:
                try:
                    if row["source"] not in unreadable:
                        found = await self._touching(rule.matcher, _occasions(row["occasions"]), {})
                except SkepError:
                    unreadable.add(row["source"])
            firing = None if rule is None or found is None else by_change(rule.spec, found)
            await self._pay(row, firing, row["source"] not in unreadable, now)
        return True

    async def _pay(self, row: Row, firing: Firing | None, readable: bool, now: float) -> None:
        key = {"rule": row["rule"], "batch": row["batch"]}

        async def work(tx: Tx) -> None:
            if not readable:
                await tx.rows("UPDATE owed SET tried_at = :now WHERE rule = :rule AND batch = :batch", now=now, **key)
                return
            gone = await tx.rows("DELETE FROM owed WHERE rule = :rule AND batch = :batch RETURNING rule", **key)
            if gone and firing is not None:
                await fire(tx, firing, now)

        await self._db.write(work)

    async def tick(self) -> None:
        """Rules of the clock: of minutes missed only the newest."""
        now = self._clock.now()
        due: list[Firing] = []
        for rule in await self._rules.active():
            cron = rule.matcher.cron
            minute = cron.newest(max(rule.since_at, self._looked), now) if cron else None
            if minute is not None and _composes(rule.spec, Occasion()):
                due.append(by_clock(rule.spec, minute))
        for first in range(0, len(due), _AT_ONCE):
            await self._db.write(partial(_fire_all, due=due[first : first + _AT_ONCE], now=now))
        self._looked = now


def grouped(messages: Sequence[Message], *, full: bool) -> Iterator[Batch]:
    """By batch. The last of a full page may go on in the next one, and waits for it unless it is alone."""
    batches: list[Batch] = []
    for message in messages:
        change = _told(message.body)
        if not batches or batches[-1].changes[0].batch != change.batch:
            batches.append(Batch([], 0))
        batches[-1].changes.append(change)
        batches[-1].next = message.offset + 1
    yield from batches[:-1] if full and len(batches) > 1 else batches


def _sees(rule: Active, source: Source) -> bool:
    return rule.private or source.visibility == "public"


def _composes(spec: RuleSpec, occasion: Occasion) -> bool:
    """A rule made under older rules of composition must not keep all others from firing."""
    try:
        composed(spec, occasion)
    except BadInput as error:
        log.error("a rule cannot fire any more", extra={"rule": spec.name, "reason": error.message})
        return False
    return True


async def _fire_all(tx: Tx, due: Sequence[Firing], now: float) -> None:
    for one in due:
        await fire(tx, one, now)


async def _owe(tx: Tx, owed: Owed, now: float) -> None:
    first = owed.occasions[0]
    about: dict[str, Value] = {"rule": owed.spec.name, "batch": first.batch, "source": first.source, "ref": first.ref}
    occasions = msgspec.json.encode(owed.occasions)
    once = "ON CONFLICT (rule, batch) DO NOTHING"
    await insert(tx, "owed", once, **about, n=owed.n, occasions=occasions, tried_at=now)
    tx.ring(CHANGED)


async def _forgive(tx: Tx, newer: Firing) -> None:
    """What is owed for an older state of the same ref need not begin either."""
    rule, source, ref = newer.place
    await tx.rows(
        "DELETE FROM owed WHERE rule = :rule AND source = :source AND ref = :ref", rule=rule, source=source, ref=ref
    )
