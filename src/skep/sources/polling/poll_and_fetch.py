"""One visit to one upstream: ask what it has, bring it, tell it. What goes wrong is a failure of that source only."""

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from skep.base.clock import Clock
from skep.base.errors import NotAllowed, SkepError, Unavailable
from skep.base.ids import batch_id
from skep.rpc.messages import Failed, Fetched
from skep.sources.model import Failure, Held, Move, Progress, diff
from skep.sources.polling.schedule import Hosts, Policy, worth_telling
from skep.sources.polling.store import Store, Watch
from skep.sources.source_type import Kind, Look, Moved, Same

# Turns what a look or a fetch brought into the next look and, where others must know, into an outcome.


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


log = logging.getLogger(__name__)

Report = Callable[[Watch, Progress], None]
#: a replica that cannot follow tries again; one that was not told of any change looks all the same
_AGAIN, _LONGEST, _ANYWAY = 2.5, 600.0, 86_400.0


class Find(msgspec.Struct):
    """What a look found, on its way to a fetch; without `moved` the upstream is asked again."""

    at: float
    asks: int
    moved: Moved | None


class Visits:
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Kind],
        teller: Teller,
        clock: Clock,
        on_same: Callable[[Watch], None],
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._teller = teller
        self._clock = clock
        self._on_same = on_same
        #: tries to get the mirror of a source that somebody else held from whoever has it
        self.copy: Callable[[Held, int], Awaitable[None]] | None = None
        #: brings a replica to where its holder's mirror stands; says why it cannot
        self.follow: Callable[[Watch], Awaitable[str]] | None = None

    async def look(self, watch: Watch) -> Find | None:
        """None when there is nothing to fetch."""
        at, asks = self._clock.now(), watch.asks
        if not watch.held.primary:
            return Find(at, asks, None)
        try:
            found = await self._ask(watch)
            if isinstance(found, Moved):
                return Find(at, asks, found)
            await self._settle(watch, found, at, asks)
        except Exception as error:
            self._stumble(watch, error)
        return None

    async def fetch(self, watch: Watch, find: Find, report: Report) -> None:
        try:
            if not watch.held.primary:
                await self._follow(watch, find)
                return
            if find.moved is None:
                find.at, find.asks = self._clock.now(), watch.asks
                found = await self._ask(watch)
                if not isinstance(found, Moved):
                    await self._settle(watch, found, find.at, find.asks)
                    return
                find.moved = found
            told = await self._store.told(watch.source)
            # a copy or a former replica may be behind what was reported, and must not be reported after a crash
            if dict(await self._kinds[watch.held.kind].versions(watch.held)) == told:
                await self._store.begin(watch)
            versions = await self._bring(watch, told, find.moved, report)
            if isinstance(versions, Failure):
                await self._teller.failed(watch, versions, find.at, find.asks)
            else:
                # an answer that the fetch did not confirm (a lagging replica) must not pass for seen
                seen = find.moved.seen if dict(versions) == dict(find.moved.versions) else ""
                kind = self._kinds[watch.held.kind]
                more, changed = kind.more(watch.held), kind.changed(watch.held)
                await self._teller.fetched(
                    watch, told, versions, seen=seen, at=find.at, asks=find.asks, more=more, changed=changed
                )
        except Exception as error:
            self._stumble(watch, error)

    async def _follow(self, watch: Watch, find: Find) -> None:
        """A replica: its holder is its upstream, and nobody is told."""
        failure = await self._mend(watch)
        reason = failure.message if failure else await self.follow(watch) if self.follow else "it mirrors nothing"
        now = self._clock.now()
        watch.asks -= find.asks
        if reason:
            log.info("the replica of %s cannot follow yet: %s", watch.source, reason)
            watch.failures += 1
            watch.next_look = now + min(_LONGEST, _AGAIN * 2.0 ** min(watch.failures, 20))
        else:
            watch.failures, watch.last_looked = 0, find.at
            watch.next_look = now if watch.asks else now + _ANYWAY
        self._store.note(watch)

    async def _mend(self, watch: Watch) -> Failure | None:
        """Before the first fetch after a start."""
        failure = None if watch.mended else await self._kinds[watch.held.kind].mend(watch.held)
        watch.mended = failure is None
        return failure

    async def _ask(self, watch: Watch) -> Look:
        try:
            kind = self._kinds[watch.held.kind]
            if watch.fetching and (failure := await self._compare(watch, kind)) is not None:
                return failure
            return await kind.look(watch.held, asked=bool(watch.asks))
        except SkepError:
            raise
        except Exception as error:
            log.exception("looking at %s failed", watch.held.url)
            return Failure("internal", f"{type(error).__name__}: {error}")

    async def _compare(self, watch: Watch, kind: Kind) -> Failure | None:
        """An earlier fetch was not told: tell what it brought, before the upstream moves on."""
        failure = await kind.mend(watch.held)
        if failure is None:
            watch.mended = True
            await self._teller.caught_up(watch, await kind.versions(watch.held))
        return failure

    async def _settle(self, watch: Watch, found: Same | Failure, at: float, asks: int) -> None:
        if isinstance(found, Failure):
            await self._teller.failed(watch, found, at, asks)
        elif await self._teller.same(watch, at, asks):
            self._on_same(watch)

    async def _bring(
        self, watch: Watch, told: dict[str, str], moved: Moved, report: Report
    ) -> Mapping[str, str] | Failure:
        kind = self._kinds[watch.held.kind]
        held = msgspec.structs.replace(watch.held, told=told)
        report(watch, Progress("fetch" if held.batches else "clone", 0, 0))
        try:
            if (failure := await self._mend(watch)) is not None:
                return failure
            if self.copy and told:
                await self.copy(held, watch.failures)
            return await kind.fetch(held, moved, lambda progress: report(watch, progress))
        except NotAllowed as error:
            return Failure("internal", error.message)
        except Unavailable as error:
            return Failure("network", error.message)
        except Exception as error:
            log.exception("fetching %s failed", held.url)
            return Failure("internal", f"{type(error).__name__}: {error}")

    def _stumble(self, watch: Watch, error: Exception) -> None:
        """What happened could not be noted: nothing was told, so nothing is lost; it is tried again later."""
        log.error("cannot note what became of %s", watch.held.url, exc_info=error)
        self._teller.put_off(watch, Failure("disk", str(error)))
