"""Turns what a look or a fetch brought into the next look and, where others must know, into an outcome."""

from collections.abc import Mapping

import msgspec

from skep.clock import Clock
from skep.link.messages import Failed, Fetched
from skep.model.ids import batch_id
from skep.model.source import Failure, Move, diff
from skep.schedule.cadence import worth_telling
from skep.schedule.hosts import Hosts
from skep.schedule.policy import Policy
from skep.worker.store import Store
from skep.worker.watch import Watch


class Teller:
    def __init__(self, store: Store, hosts: Hosts, policy: Policy, clock: Clock) -> None:
        self._store = store
        self._hosts = hosts
        self._policy = policy
        self._clock = clock

    async def same(self, watch: Watch, at: float, asks: int) -> bool:
        """Nothing moved: only who waits, or saw it failing, is told. True when the next beat may say so."""
        quiet = not watch.failures and not asks
        self._succeeded(watch, at, False)
        if quiet:
            self._store.note(watch)
            return True
        told = await self._store.told(watch.source)
        await self._store.tell(watch, _body(watch, told, told), at=at, answers=asks)
        return False

    async def fetched(
        self,
        watch: Watch,
        told: dict[str, str],
        versions: Mapping[str, str],
        *,
        seen: str,
        at: float,
        asks: int,
        more: bool = False,
        changed: bool = False,
    ) -> None:
        """`more`: it is not finished, and goes on when it is its turn in its lane. `changed`: though no version is."""
        now = dict(versions)
        body = _body(watch, told, now)
        self._succeeded(watch, at, changed or bool(body.moves))
        if more:
            watch.next_look = self._clock.now()
        await self._store.tell(watch, body, at=at, answers=asks, told=now, seen=seen)

    async def caught_up(self, watch: Watch, versions: Mapping[str, str]) -> None:
        """The mirror was compared with what was told. A mirror that is gone says nothing about its upstream."""
        told, now = await self._store.told(watch.source), dict(versions)
        if not now or now == told:
            watch.fetching = False
            watch.held = msgspec.structs.replace(watch.held, seen=watch.held.seen if now else "")
            return
        at = self._clock.now()
        self._succeeded(watch, at, True)
        await self._store.tell(watch, _body(watch, told, now), at=at, told=now, seen="")

    async def failed(self, watch: Watch, failure: Failure, at: float, asks: int) -> None:
        before = watch.failure
        now = self._clock.now()
        watch.failed(now, failure, self._policy, self._clock.random())
        if failure.retry_after is not None or failure.kind == "rate_limited":
            self._store.rest(watch.host, self._hosts.rest(watch.host, now, watch.next_look))
        if asks or worth_telling(watch.failures, before, failure.kind):
            await self._store.tell(watch, Failed(failure, watch.failures), at=at, answers=asks)
        else:
            self._store.note(watch)

    def put_off(self, watch: Watch, failure: Failure) -> None:
        """Later; nobody is told."""
        watch.failed(self._clock.now(), failure, self._policy, self._clock.random())
        self._store.note(watch)

    def _succeeded(self, watch: Watch, at: float, changed: bool) -> None:
        first = not watch.last_looked
        changed_at = at if changed and not first else None
        watch.succeeded(at, changed_at, self._policy, self._clock.random(), watch.held.settings)


def _body(watch: Watch, told: dict[str, str], now: dict[str, str]) -> Fetched:
    moves: tuple[Move, ...] = diff(told, now) if told is not now else ()
    held = watch.held
    return Fetched(
        batch_id(held.source, held.epoch, held.batches + 1),
        moves,
        first=not told and not held.batches,
        default_branch=now.get("HEAD", "").removeprefix("refs/heads/"),
    )
