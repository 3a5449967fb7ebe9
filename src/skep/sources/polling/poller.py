"""Looks at every held source when it is due, fetches what moved, tells it. A source is in one pair of hands only."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.config.settings import Settings
from skep.processes.tunnel_sender import Giving
from skep.rpc.messages import LOOKED_LIMIT, Looked
from skep.sources.model import Progress
from skep.sources.polling.poll_and_fetch import Find, Teller, Visits
from skep.sources.polling.schedule import Policy, sooner
from skep.sources.polling.scheduler import Turns
from skep.sources.polling.store import Place, Store, Watch
from skep.sources.source_type import Kind

# Mirrors of released sources are removed once nobody reads them, however often that has to be tried.

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 60.0


class Removal:
    def __init__(self, store: Store, kinds: Mapping[str, Kind], done: Callable[[str], None]) -> None:
        self._store = store
        self._kinds = kinds
        self._done = done
        #: released, the mirror still there
        self._leaving: dict[str, Watch] = {}
        self._removing: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        #: to whom mirrors are copied; git takes the rest of one that is being removed for all there is
        self.giving: Giving | None = None

    def __contains__(self, source: str) -> bool:
        return source in self._leaving

    async def load(self) -> None:
        for watch in await self._store.released():
            self._leaving[watch.source] = watch

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        for source in self._leaving:
            self.begin(source)

    def stop(self) -> None:
        self._group = None

    def put(self, watch: Watch) -> None:
        """It is to go; `begin` once nobody has it in hand."""
        self._leaving[watch.source] = watch

    def take_back(self, source: str) -> None:
        self._leaving.pop(source, None)

    def running(self, source: str) -> bool:
        return source in self._removing

    def begin(self, source: str) -> None:
        if self._group is not None:
            self._removing.add(source)
            self._group.create_task(self._remove(source))

    async def _remove(self, source: str) -> None:
        while (watch := self._leaving.get(source)) is not None:
            try:
                if self.giving is not None:
                    await self.giving.finish(source, lambda: source in self._leaving)
                if self._leaving.get(source) is not watch:
                    continue
                await self._kinds[watch.held.kind].remove(watch.held)
                await self._store.forget(source)
                self._leaving.pop(source, None)
            except Exception:
                log.exception("cannot remove the mirror of %s yet", watch.held.url)
                await asyncio.sleep(_AGAIN_SECONDS)
        self._removing.discard(source)
        self._done(source)


# The watches that are due soon, in memory. The others stay in the worker's file, where any number costs nothing.

#: so many are in memory, and more only while they are due
KEEP = 20_000
_AHEAD_SECONDS = 60.0


class Watches:
    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self._store = store
        self._keep = keep
        self._page = max(1, keep // 4)
        self._near: dict[str, Watch] = {}
        #: whoever comes before it, in the order of next looks, is in memory
        self._horizon: Place = (-1.0, "")
        #: rises when a page that is being read may be wrong
        self._version = 0
        #: rescheduled since the last `tidy`
        self._moved: set[str] = set()

    def __contains__(self, source: str) -> bool:
        return source in self._near

    def __iter__(self) -> Iterator[Watch]:
        return iter(self._near.values())

    def get(self, source: str) -> Watch | None:
        return self._near.get(source)

    def put(self, watch: Watch) -> None:
        self._near[watch.source] = watch

    def offer(self, watch: Watch) -> bool:
        """Put it, unless there are too many already: then it is read when it is its turn."""
        if watch.source in self._near or len(self._near) < 2 * self._keep:
            self.put(watch)
            return True
        self._version += 1
        self._horizon = min(self._horizon, (watch.next_look, ""))
        return False

    def pop(self, source: str) -> Watch | None:
        self._version += 1
        return self._near.pop(source, None)

    def moved(self, source: str) -> None:
        self._moved.add(source)

    async def tidy(self, let_go: Callable[[str], bool]) -> None:
        """Write what moved, then forget who is not due for long. `let_go` says no to one that is in hand."""
        moved, self._moved = self._moved, set()
        try:
            await self._store.flush()
        except BaseException:
            self._moved |= moved
            raise
        for source in moved - self._moved:
            watch = self._near.get(source)
            if watch is None or len(self._near) <= self._keep or (watch.next_look, source) <= self._horizon:
                continue
            if not watch.asks and let_go(source):
                del self._near[source]

    async def more(self, now: float) -> list[Watch]:
        """Those that come next, while there is room or they are due."""
        fresh: list[Watch] = []
        while self._horizon[0] < math.inf and (len(self._near) < self._keep or self._horizon[0] < now + _AHEAD_SECONDS):
            version = self._version
            page = await self._store.next(self._horizon, self._page)
            if version == self._version:
                fresh += self._take(page)
        return fresh

    def _take(self, page: list[Watch]) -> Iterator[Watch]:
        last = page[-1] if len(page) == self._page else None
        self._horizon = (last.next_look, last.source) if last else (math.inf, "")
        for watch in page:
            if watch.source not in self._near:
                self.put(watch)
                yield watch


_FLUSH_SECONDS = 1.0
#: a look at what is somebody else's from now on is waited for so long
_REST_SECONDS = 10.0
#: announcements kept for fetches that wait; beyond, the upstream is asked again when its turn comes
_KEPT_MOVED = 64


class Poller:
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Kind],
        settings: Settings,
        clock: Clock,
        on_progress: Callable[[], None] = lambda: None,
        keep: int = KEEP,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._on_progress = on_progress
        self._turns = Turns(settings, clock, look=self._look, fetch=self._fetch, blocked=lambda: store.full)
        self._policy = Policy.of(settings)
        teller = Teller(store, self._turns.hosts, self._policy, clock)
        self.visits = Visits(store, kinds, teller, clock, self._same)
        self._watches = Watches(store, keep)
        self.removal = Removal(store, kinds, self._removed)
        #: moved, and not fetched yet
        self._finds: dict[str, Find] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        #: held anew while something was still in hand
        self._again: dict[str, Watch] = {}
        #: somebody else's from now on, and its upstream is still being asked
        self._last_looks: dict[str, asyncio.Event] = {}
        self._looked: dict[str, Watch] = {}
        #: of interest, and far; hosts that far ones may be asked at again
        self._hurried: set[str] = set()
        self._unlocked: set[str] = set()
        #: in hand when better credentials came; what it ends with may be owed to the old ones
        self._outdated: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        self.progress: dict[str, Progress] = {}

    async def load(self) -> None:
        """Remember what is held; before the first order comes."""
        for host, rest in (await self._store.rests()).items():
            self._turns.hosts.restore(host, self._clock.now(), rest)
        if self._policy.budget:
            self._policy.restore(await self._store.cells())
        await self.removal.load()
        await self._look_ahead()

    async def run(self) -> None:
        """Until cancelled; what is in hand then is dropped, and found again at the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self.removal.start(group)
                self._turns.start(group)
                try:
                    await self._tend()
                finally:
                    self._group = None
                    self.removal.stop()
                    self._turns.stop()
        finally:
            self._store.keep(self._policy.cells())
            await self._store.flush()

    # orders, once the store has them

    async def hold(self, source: str, *, anew: bool = False) -> None:
        fresh = await self._store.watch(source)
        known = self._watches.get(source)
        dropped = anew and self._again.pop(source, None) is None
        if fresh is None or dropped:
            return
        if not anew and known and _identity(known) == _identity(fresh):
            before = known.held
            known.held = msgspec.structs.replace(fresh.held, seen=before.seen, batches=before.batches)
            if not before.primary or (before.settings, before.accepted) != (fresh.held.settings, fresh.held.accepted):
                await self.ask(source, before.epoch)
            return
        self.removal.take_back(source)
        self._interrupt(source, None if fresh.held.primary else known)
        if self._in_hand(source):
            self._again[source] = fresh
        elif self._watches.offer(fresh):
            if known is not None:
                self._policy.count(known.bounds, known.wait, -1)
                self._policy.count(fresh.bounds, fresh.wait, 1)
            fresh.next_look = self._clock.now() if anew else fresh.next_look
            self._queue(fresh)
            self._turns.kick()

    async def drop(self, source: str) -> None:
        """Stop, and remove the mirror."""
        again = self._again.pop(source, None)
        watch = self._watches.pop(source) or again or await self._store.watch(source, released=True)
        if watch is None:
            return
        self._policy.count(watch.bounds, watch.wait, -1)
        self._turns.looks.discard(source)
        self._interrupt(source, watch)
        self.removal.put(watch)
        if not self._in_hand(source):
            self.removal.begin(source)

    async def rest(self) -> None:
        """Until no upstream is asked any more for what was let go of; a fetch is ended, a look ends by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                for look in list(self._last_looks.values()):
                    await look.wait()
        self._last_looks.clear()

    async def ask(self, source: str, epoch: int) -> None:
        """Somebody waits for the next outcome."""
        watch = await self.find(source)
        if watch is not None and watch.held.epoch == epoch:
            watch.asks += 1
            self._turns.bump(source)
            self._turns.kick()

    def unlocked(self, hosts: Collection[str]) -> None:
        """There may be better credentials for these: whoever was refused is asked again."""
        for watch in list(self._watches):
            if watch.host in hosts and watch.source not in self._turns.looks:
                self._outdated.add(watch.source)
            self._retry(watch, hosts)
        self._unlocked |= set(hosts)
        self._turns.kick()

    def interest(self, sources: Iterable[str]) -> None:
        """People look at these: so do we, sooner than planned, though no more often than the bounds permit."""
        for source in sources:
            if (watch := self._watches.get(source)) is None:
                self._hurried.add(source)
            elif watch.failure is None and watch.held.primary:
                self._hasten(
                    watch, sooner(watch.last_looked, watch.next_look, self._policy.bounds_of(watch.held.settings))
                )
        self._turns.kick()

    def share(self, start: float, end: float) -> None:
        """Others ask the same hosts, each its part of what they permit."""
        self._turns.hosts.share = (start, end)
        self._turns.kick()

    async def _reach_far(self) -> None:
        """What was said of sources that are not in memory."""
        hosts, self._unlocked = self._unlocked, set()
        for source in await self._store.refused() if hosts else ():
            if source not in self._watches and (watch := await self.find(source)) is not None:
                self._retry(watch, hosts)
        hurried, self._hurried = self._hurried, set()
        self.interest([source for source in hurried if await self.find(source) is not None])

    def _retry(self, watch: Watch, hosts: Collection[str]) -> None:
        if watch.failure == "auth" and watch.host in hosts:
            self._hasten(watch, 0.0)

    def _hasten(self, watch: Watch, due: float) -> None:
        if watch.source in self._turns.looks and due < watch.next_look:
            watch.next_look = due
            self._queue(watch)

    def kick(self) -> None:
        """The outbox has room again."""
        self._turns.kick()

    # what others want to know

    async def find(self, source: str) -> Watch | None:
        """From memory, else from the file; then it stays in memory until it was looked at."""
        if (known := self._watches.get(source)) is not None:
            return known
        fresh = await self._store.watch(source)
        if fresh is None or source in self.removal or source in self._watches:
            return self._watches.get(source)
        self._watches.put(fresh)
        self._queue(fresh)
        return fresh

    def looked(self) -> tuple[Looked, ...]:
        """What was looked at since the last call and was the same."""
        batch = [self._looked.pop(source) for source in list(self._looked)[:LOOKED_LIMIT]]
        return tuple(Looked(watch.source, watch.held.epoch, watch.last_looked, watch.next_look) for watch in batch)

    def fetching(self) -> list[str]:
        """URLs of what is being fetched."""
        return [watch.held.url for source in self._fetching if (watch := self._watches.get(source))]

    # looking and fetching

    async def _look(self, source: str) -> None:
        watch = self._watches.get(source)
        find = None
        try:
            if watch is not None:
                find = await self.visits.look(watch)
        finally:
            self._turns.leave(source)
            if watch is not None and find and self._watches.get(source) is watch and source not in self._again:
                if len(self._finds) >= _KEPT_MOVED:
                    find.moved = None
                self._finds[source] = find
                heavy = self._kinds[watch.held.kind].heavy(watch.held)
                lane = self._turns.heavy if heavy else self._turns.fetches
                lane.put(source, watch.host, self._clock.now())
                self._turns.kick()
            else:
                self._finish(source)

    async def _fetch(self, source: str) -> None:
        watch, find = self._watches.get(source), self._finds.pop(source, None)
        try:
            if watch is not None and find is not None and source not in self._again:
                work = self._fetching[source] = asyncio.create_task(self.visits.fetch(watch, find, self._report))
                try:
                    await asyncio.wait([work])
                finally:
                    work.cancel()
                    await asyncio.wait([work])
        finally:
            self._fetching.pop(source, None)
            self.progress.pop(source, None)
            self._turns.leave(source)
            self._finish(source)
            self._on_progress()
            self._turns.kick()

    def _report(self, watch: Watch, progress: Progress) -> None:
        self.progress[watch.source] = progress
        self._on_progress()

    def _same(self, watch: Watch) -> None:
        self._looked[watch.source] = watch

    # turns

    def _queue(self, watch: Watch) -> None:
        self._turns.looks.put(watch.source, watch.host, 0.0 if watch.asks else watch.next_look)

    def _in_hand(self, source: str) -> bool:
        return self._turns.running(source) or self.removal.running(source)

    def _interrupt(self, source: str, lost: Watch | None) -> None:
        """A fetch that nobody wants any more ends now; a look ends soon by itself. `lost`: somebody else's now."""
        if lost and lost.held.primary and self._turns.running(source):
            self._last_looks.setdefault(source, asyncio.Event())
        self._turns.drop_fetch(source)
        self._finds.pop(source, None)
        if source in self._fetching:
            self._fetching[source].cancel()

    def _finish(self, source: str) -> None:
        """Nobody has it in hand any more: on to what comes next."""
        watch = self._watches.get(source)
        self._finds.pop(source, None)
        if (last := self._last_looks.pop(source, None)) is not None:
            last.set()
        if source in self._again and self._group is not None:
            self._group.create_task(self.hold(source, anew=True))
        elif watch is not None:
            self._queue(watch)
            if source in self._outdated:
                self._retry(watch, {watch.host})
            self._watches.moved(source)
        elif source in self.removal:
            self.removal.begin(source)
        self._outdated.discard(source)

    def _removed(self, source: str) -> None:
        self._finish(source)
        self._turns.kick()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                self._store.keep(self._policy.cells())
                await self._watches.tidy(self._let_go)
                await self._reach_far()
                await self._look_ahead()
            except SkepError as error:
                log.error("cannot keep the schedule: %s", error.message)

    async def _look_ahead(self) -> None:
        for watch in await self._watches.more(self._clock.now()):
            self._queue(watch)
        self._turns.kick()

    def _let_go(self, source: str) -> bool:
        """True when it only waited for its next look."""
        waited = source in self._turns.looks
        self._turns.looks.discard(source)
        return waited


def _identity(watch: Watch) -> tuple[int, str, bool]:
    return watch.held.epoch, watch.held.url, watch.held.primary
