"""The coordinator's desk: what arrives over the link is handed to the rooms, what the rooms order goes out."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.ids import new_id
from skep.fleet import tunnels
from skep.fleet.assignments import Pending, Shares, changed, channel, confirm, held_by, pending
from skep.fleet.members import Fleet, Interest
from skep.fleet.tunnels import Tunnels
from skep.processes.requests import Requests
from skep.rpc.messages import (
    Ack,
    AnswerBody,
    AskBody,
    Beat,
    Failed,
    Fetched,
    FetchNow,
    Hello,
    Hold,
    Looked,
    Order,
    Outcome,
    Refused,
    Release,
)
from skep.sources.credentials import CREDENTIALS, Credentials
from skep.sources.lists.service import Lists
from skep.sources.model import Held, Key
from skep.sources.report_handler import Intake, Stale
from skep.sources.service import Sources
from skep.spaces.processes import Statuses
from skep.spaces.service import Spaces
from skep.storage.database import Bell, Database
from skep.tasks.dispatcher import Reports
from skep.tasks.model import Run, TaskHold
from skep.tasks.placer import runs_channel
from skep.topics.api import Draft
from skep.topics.service import WORKERS, Topics

#: orders sent in one go; the rest follows when these are confirmed
ORDERS_AT_ONCE = 500
#: who is to let go of a source before another holds it has so long to say that it did
_LET_GO_SECONDS = 15.0

R = TypeVar("R", Looked, Outcome)


class Desk:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        fleet: Fleet,
        topics: Topics,
        sources: Sources,
        lists: Lists,
        intake: Intake,
        spaces: Spaces,
        statuses: Statuses,
        reports: Reports,
        requests: Requests,
        credentials: Credentials,
        interest: Interest,
        tunnels: Tunnels,
        shares: Shares,
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._topics = topics
        self._sources = sources
        self._lists = lists
        self._intake = intake
        self._spaces = spaces
        self._statuses = statuses
        self._reports = reports
        self._requests = requests
        self._credentials = credentials
        self._interest = interest
        #: member -> orders to hold that wait for somebody else, since when
        self._withheld: dict[str, dict[int, float]] = {}
        self.openings = tunnels.openings
        self.share = shares.of

    async def hello(self, hello: Hello, *, local: bool) -> str | Refused:
        try:
            await self._fleet.join(
                hello.member,
                hello.token,
                hello.boot,
                hello.roles[0],
                hello.offer,
                also=lambda tx: self._reports.returned(tx, hello.member, hello.running),
                local=local,
            )
        except SkepError as error:
            return Refused(None, error.code, error.message, error.hint)
        await self._spaces.release(hello.member, but=f"{hello.member}/{hello.boot}")
        await self._tell(hello.member, "attached")
        return hello.member

    async def watch(self, hello: Hello) -> None:
        await self._fleet.tokens.watch(hello.token)

    async def beat(self, member: str, boot: int, beat: Beat) -> None:
        await self._fleet.beat(member, boot, beat.status, beat.progress, beat.ill)
        await self._statuses.tell(member, beat.status)
        if beat.looked:
            await self._intake.looked(member, [self._seen(one) for one in beat.looked])

    async def done(self, member: str, numbers: Sequence[int]) -> None:
        confirmed = await confirm(self._db, member, numbers, self._clock.now())
        await self._intake.taken([order.source for order in confirmed if order.kind == "hold"])

    def bell(self, member: str) -> AbstractAsyncContextManager[Bell]:
        return self._db.listen(channel(member))

    async def ask(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        return await self._requests.answer(member, boot, body, again)

    async def runs(self, member: str) -> tuple[list[Run], set[TaskHold]]:
        return await self._reports.runs(member)

    def runs_bell(self, member: str) -> AbstractAsyncContextManager[Bell]:
        return self._db.listen(runs_channel(member))

    async def keys(self) -> tuple[Key, ...]:
        return await self._credentials.keys()

    def keys_bell(self) -> AbstractAsyncContextManager[Bell]:
        return self._db.listen(CREDENTIALS)

    def now(self) -> float:
        return self._clock.now()

    def interest(self, after: int) -> tuple[int, list[str]]:
        return self._interest.since(after)

    def openings_bell(self, member: str) -> AbstractAsyncContextManager[Bell]:
        return self._db.listen(tunnels.channel(member))

    async def gone(self, member: str, boot: int, *, down: bool) -> None:
        if not await self._fleet.leave(member, boot, down=down):
            return  # what it has is its own, wherever it is attached now
        await self._spaces.release(f"{member}/{boot}")
        await self._statuses.remove(member)
        await self._tell(member, "detached")

    async def _tell(self, member: str, state: str) -> None:
        now = self._clock.now()
        id = new_id("wke", now)
        event = Draft(msgspec.json.encode({"id": id, "member": member, "state": state, "at": now}), id, member)
        await self._db.write(lambda tx: self._topics.tell(tx, WORKERS, [event], now), runtime=True)

    async def orders(self, member: str) -> list[Order]:
        waiting = await pending(self._db, member, ORDERS_AT_ONCE)
        if waiting and (first := await self._lists.first()) is not None:
            waiting = [one for one in waiting if one.source in first]
        waiting = self._in_turn(member, waiting)
        known = await self._sources.held_many([one.source for one in waiting if one.kind != "release"])
        composed = [(one.n, _body(one, known.get(one.source))) for one in waiting]
        moot = [n for n, body in composed if body is None]
        if moot:
            await confirm(self._db, member, moot, self._clock.now())
        return [Order(n, body) for n, body in composed if body is not None]

    def _in_turn(self, member: str, waiting: Sequence[Pending]) -> list[Pending]:
        """Nobody holds a source before the last holder has let go of it, so that never two look at it at once."""
        now, before = self._clock.now(), self._withheld.pop(member, {})
        held_up = {one.n: before.get(one.n, now) for one in waiting if one.kind == "hold" and one.waits}
        if held_up:
            self._withheld[member] = held_up
        return [one for one in waiting if held_up.get(one.n, 0.0) < now - _LET_GO_SECONDS]

    async def outcomes(self, member: str, outcomes: Sequence[Outcome]) -> list[Ack | Refused]:
        """Reports of one source in their order, sources side by side, so that the database can gather their commits."""
        by_source: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_source.setdefault(outcome.source, []).append(outcome)
        own = await held_by(self._db, member, by_source)
        answers = await asyncio.gather(*(self._in_order(by_source[source]) for source in own))
        foreign = [outcome.n for outcome in outcomes if outcome.source not in own]
        refused = [Refused(n, "stale", f"{member} does not hold this source") for n in foreign]
        return [*(answer for group in answers for answer in group), *refused]

    async def _in_order(self, outcomes: list[Outcome]) -> list[Ack | Refused]:
        return [await self._take(outcome) for outcome in outcomes]

    def _seen(self, report: R) -> R:
        """By now at the latest: the member's clock may have been ahead when it wrote this."""
        return msgspec.structs.replace(report, at=min(report.at, self._clock.now()))

    async def _take(self, outcome: Outcome) -> Ack | Refused:
        outcome = self._seen(outcome)
        match outcome.body:
            case Fetched(batch, moves, first, branch):
                verdict = await self._intake.fetched(outcome, batch, moves, first=first, default_branch=branch)
                if moves and not isinstance(verdict, Stale):
                    await changed(self._db, outcome.source)
            case Failed(failure, failures):
                verdict = await self._intake.failed(outcome, failure, failures)
        self._fleet.settled(outcome.source)
        if isinstance(verdict, Stale):
            return Refused(outcome.n, "stale", verdict.reason)
        return Ack((outcome.n,))


def _body(order: Pending, source: Held | None) -> Hold | Release | FetchNow | None:
    """None: the source is gone, there is nothing left to do."""
    if order.kind == "release":
        return Release(order.source)
    if source is None:
        return None
    if order.kind == "copy":
        return Hold(msgspec.structs.replace(source, primary=False, told={}))
    return Hold(source) if order.kind == "hold" else FetchNow(order.source, source.epoch)
