"""Copies of sources that others hold: from whoever has them, from the upstream as a last resort."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

from skep.access.audit import note
from skep.base.caller import SYSTEM
from skep.base.clock import Clock
from skep.base.errors import NotAllowed, NotFound, SkepError, Unavailable
from skep.base.io import Stream
from skep.config.settings import Settings
from skep.fleet import assignments
from skep.fleet.assignments import Raise, hand_over
from skep.fleet.events import DOWN, UNSTABLE_SECONDS
from skep.fleet.members import FLEET, OFFERED, Fleet, member_of
from skep.fleet.ring import Change, Holding, Member, Plan, plan
from skep.rpc.connect import Dial
from skep.rpc.messages import AnswerBody, AskBody
from skep.rpc.tunnel import dial
from skep.sources.git import repository
from skep.sources.git.mirror import folder_of
from skep.sources.git.mirror_copy import Bounds, Told, fetch_through, nothing_told
from skep.sources.model import Copied, CopyFrom, CopyWanted, Failure, Held
from skep.sources.polling.poller import Poller
from skep.sources.polling.store import Store, Watch
from skep.sources.source_type import Kind, Moved
from skep.storage.database import Database, Tx
from skep.tasks.contexts import Contexts
from skep.tasks.model import ContextSpec, Run, TaskSpec
from skep.tasks.placer import Owners
from skep.tasks.task_types import ReplicateArguments, decoded
from skep.tasks.worker import TaskFailed

# Sources that change hands, and their copies: planned from who is there and who has what, done one transaction at a
# time.

#: a copy that takes longer keeps no other from beginning
PATIENCE = 3_600.0
#: of a holder that changed meanwhile no copy is made, nor of a source that is gone
_COPY = (
    "INSERT INTO source_replica (source, member, complete, at) SELECT source, :member, 0, :now FROM holding "
    "WHERE source = :source AND member <> :member ON CONFLICT (source, member) DO NOTHING RETURNING source"
)


class Moves:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, raised: Raise, replicas: int = 1) -> None:
        """`replicas`: how many have each source, its holder among them."""
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._raised = raised
        self._replicas = replicas

    async def plan(self) -> tuple[list[Member], Plan]:
        """Who is there, and what should change; both as they stand in one moment."""
        members, holdings = await self._db.write(self._standing, runtime=True)
        if self._fleet.is_early(members):
            return members, Plan([], [], [])
        return members, await asyncio.to_thread(plan, members, holdings, self._replicas)

    async def unfetched(self) -> dict[str, bool]:
        """Sources of which nobody has anything yet, and whether they have failed; else they are being cloned."""
        rows = await self._db.read("SELECT id, failures FROM source WHERE last_fetched IS NULL AND state <> 'removed'")
        return {row["id"]: row["failures"] > 0 for row in rows}

    async def _standing(self, tx: Tx) -> tuple[list[Member], list[Holding]]:
        downs = await tx.rows(
            "SELECT member, count(*) AS n FROM member_event WHERE what = :down AND at > :since GROUP BY member",
            down=DOWN,
            since=self._clock.now() - UNSTABLE_SECONDS,
        )
        often = {row["member"]: int(row["n"]) for row in downs}
        members = await tx.rows("SELECT * FROM member WHERE mirror = 1")
        having: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for row in await tx.rows("SELECT source, member, complete FROM source_replica ORDER BY member"):
            having[row["source"], row["complete"]].append(row["member"])
        holdings = [
            Holding(
                row["source"],
                row["member"],
                tuple(json.loads(row["pins"])),
                *(tuple(having.get((row["source"], complete), ())) for complete in (1, 0)),
            )
            for row in await tx.rows("SELECT source, member, pins FROM holding ORDER BY source")
        ]
        return [member_of(row, often.get(row["id"], 0)) for row in members], holdings

    async def take_over(self, changes: Sequence[Change]) -> None:
        """By who has a copy; or from nobody, or from one that is gone: there is nobody to copy from, or to wait for."""

        async def work(tx: Tx) -> None:
            await assignments.lock(tx)
            for change in changes:
                rows = await tx.rows("SELECT member FROM holding WHERE source = :source", source=change.source)
                if rows and rows[0]["member"] == change.old:
                    await self._hand_over(tx, change)
            tx.ring(OFFERED)  # tasks that wait for the holder have another one now

        await self._db.write(work)

    async def _hand_over(self, tx: Tx, change: Change) -> None:
        now, (source, old, new) = self._clock.now(), (change.source, change.old, change.new)
        done = await hand_over(tx, source, old, new, self._raised, keep=change.keep, now=now)
        if done and old:  # what is only given out for the first time is no move
            await note(tx, now, SYSTEM, "source.move", f"{source} {old} {new}")

    async def copy(self, wanted: Sequence[tuple[str, str]]) -> None:
        """These members (source, member) make copies from now on, and keep them up to date."""

        async def work(tx: Tx) -> None:
            await assignments.lock(tx)
            now = self._clock.now()
            new = [one for one in wanted if await tx.rows(_COPY, source=one[0], member=one[1], now=now)]
            await assignments.order_instead(tx, "copy", new)

        await self._db.write(work)

    async def release(self, spare: Sequence[tuple[str, str]]) -> None:
        """These members let go of their copies, complete or not, when they hear of it."""

        async def work(tx: Tx) -> None:
            await assignments.lock(tx)
            sql = "DELETE FROM source_replica WHERE source = :source AND member = :member RETURNING source"
            gone = [one for one in spare if await tx.rows(sql, source=one[0], member=one[1])]
            await assignments.order_instead(tx, "release", gone)

        await self._db.write(work)

    async def copied(self, source: str, member: str) -> None:
        """The member has all of it."""
        sql = "UPDATE source_replica SET complete = 1 WHERE source = :source AND member = :member"
        await self._db.write(lambda tx: tx.rows(sql, source=source, member=member))

    async def under_way(self) -> int:
        sql = "SELECT count(*) AS n FROM source_replica WHERE complete = 0 AND at > :since"
        rows = await self._db.read(sql, since=self._clock.now() - PATIENCE)
        return int(rows[0]["n"])


# Keeps what is held where it should be: watches members, plans, and has copies made in small batches that grow.
#
# A source whose holder is there is copied first; only when the new one has all of it does it become the holder. Where
# the holder is gone, one that has a copy takes its place; what nobody else has is given away at once.

log = logging.getLogger(__name__)

CAUSE = "move"
_SMALLEST, _LARGEST = 8, 512
_AT_ONCE = 1_000
#: everything is looked at again so often, whether or not anything rang
_PLAN_SECONDS = 60.0
#: times what a plan took until the next: where a million sources make it long, somebody always comes or goes
_REST = 3.0
#: how soon it is seen that copies are complete
_SOON = 1.0


class Moving:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        fleet: Fleet,
        moves: Moves,
        contexts: Contexts,
        owners: Owners,
        beat_every: float,
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._moves = moves
        self._contexts = contexts
        self._owners = owners
        self._beat_every = beat_every
        self._batch = _SMALLEST
        self._planned = self._rested = 0.0
        #: something happened that the last plan does not know of
        self._changed = False
        #: copies of the last plan that were not begun yet
        self._waiting: Iterator[tuple[str, str]] = iter(())
        self._under_way = 0

    async def follow(self) -> None:
        async with self._db.listen(FLEET) as bell:
            rang = True
            while True:
                await self._fleet.listen()
                if 0 in self._owners.owned:  # one coordinator does it
                    await self._fleet.patrol()
                    await self.step(rang)
                rang = await bell.wait(self._pause())

    def _pause(self) -> float:
        """Until there may be something to do, whether or not anything rings."""
        pause = min(_SOON, self._beat_every) if self._under_way else self._beat_every
        return max(0.0, min(pause, self._rested - self._clock.now())) if self._changed else pause

    async def step(self, changed: bool) -> None:
        """A batch that is complete makes the next one larger; after the last one, who has a copy becomes the holder."""
        before, self._under_way = self._under_way, await self._moves.under_way()
        ended = before > 0 and not self._under_way
        if ended:
            self._batch = min(_LARGEST, 2 * self._batch)
            await self._copy()
        if changed:
            self._batch = _SMALLEST
        now = self._clock.now()
        self._changed |= changed or (ended and not self._under_way)
        if now >= self._rested and (self._changed or now >= self._planned + _PLAN_SECONDS):
            self._changed = False
            await self._plan()
            self._rested = self._clock.now() + _REST * (self._clock.now() - now)

    async def _plan(self) -> None:
        members, plan = await self._moves.plan()
        there = {member.id for member in members if member.state != "gone"}
        # what is being cloned stays until it can be copied; what never could be has nothing to copy
        unfetched = await self._moves.unfetched() if plan.changes or plan.copies else {}
        now = [one for one in plan.changes if one.ready or one.old not in there or unfetched.get(one.source)]
        for first in range(0, len(now), _AT_ONCE):
            await self._moves.take_over(now[first : first + _AT_ONCE])
        for first in range(0, len(plan.spare), _AT_ONCE):
            await self._moves.release(plan.spare[first : first + _AT_ONCE])
        self._planned = 0.0 if now else self._clock.now()  # another holder, another plan
        self._waiting = (one for one in plan.copies if one[0] not in unfetched)
        await self._copy()

    async def _copy(self) -> None:
        if batch := list(islice(self._waiting, max(0, self._batch - self._under_way))):
            await self._moves.copy(batch)
            self._under_way += len(batch)
            tasks = tuple(_task(*one) for one in batch)
            copies = ContextSpec(f"copy {len(batch)} sources", tasks)
            await self._contexts.submit(SYSTEM, copies, cause=CAUSE, internal=True)
            log.info("%d copies are being made", self._under_way)


def _task(source: str, member: str) -> TaskSpec:
    """The copy is ordered; the task is where people see it, and what became of it."""
    wanted, where = {"source": source}, f'id == "{member}"'
    return TaskSpec(f"{source}-{member}", "replicate", arguments=wanted, selector=where, timeout=PATIENCE)


# Is everything that a mirror's refs lead to there and readable? Asked by a task, and for each mirror in its turn.

_PACE = 60.0


class Checking:
    def __init__(self, poller: Poller, kinds: Mapping[str, Kind], store: Store, clock: Clock, every: float) -> None:
        self._poller = poller
        self._kinds = kinds
        self._store = store
        self._clock = clock
        self._every = every
        self._pace = min(_PACE, every / 10)

    async def fsck(self, run: Run) -> dict[str, Any]:
        """The kind of task."""
        watch = await self._poller.find(run.spec.source)
        if watch is None:
            raise TaskFailed(f"{run.spec.source or 'no source'} is not mirrored here")
        failure = await self._check(watch)
        if failure is not None:
            raise TaskFailed(failure.message)
        return {"source": watch.source, "sound": True}

    async def patrol(self) -> None:
        """Until cancelled. Each mirror has a moment of its own in every `every` seconds, wherever that began."""
        since = await self._store.checked()
        since = self._clock.now() if since is None else since
        while True:
            await asyncio.sleep(self._pace)
            until = self._clock.now()
            for source in await asyncio.to_thread(due, await self._store.sources(), self._every, since, until):
                watch = await self._poller.find(source)
                if watch is not None:
                    with self._grumble(watch.held.url):
                        await self._check(watch)
            since = until
            with self._grumble("the time of the last check"):
                await self._store.note_checked(until)

    @contextmanager
    def _grumble(self, what: str) -> Iterator[None]:
        """One that cannot be checked now has its next turn; the others do not wait for it."""
        try:
            yield
        except (SkepError, OSError) as error:
            log.warning("checking mirrors: %s: %s", what, error)

    async def _check(self, watch: Watch) -> Failure | None:
        """What is damaged is fetched again at once."""
        failure = await self._kinds[watch.held.kind].check(watch.held)
        if failure is not None:
            log.warning("%s: %s", watch.held.url, failure.message)
            await self._poller.ask(watch.source, watch.held.epoch)
        return failure


def due(sources: list[str], every: float, since: float, until: float) -> list[str]:
    """Those whose moment lies after `since` and not after `until`; each once, however long that is."""
    found = []
    for source in sources:
        moment = crc32(source.encode()) / 2**32 * every
        if (until - moment) // every > (since - moment) // every:
            found.append(source)
    return found


KIND = "replicate"

#: so often whoever has it is asked before the upstream is: for five minutes
_TRIES = 6
#: its upstream is polled meanwhile: a holder waits less long
_TRIES_OF_HOLDER = 2
#: a coordinator that is away keeps nobody from asking the upstream
_TICKET_SECONDS = 30.0
#: a copy may also be complete because its worker has become the holder
_LOOK_SECONDS = 5.0


class Replicating:
    def __init__(
        self,
        settings: Settings,
        member: str,
        kinds: Mapping[str, Kind],
        ask: Callable[[AskBody, float | None], Awaitable[AnswerBody]],
        here: Callable[[], Dial],
        clock: Clock,
    ) -> None:
        """`here`: the coordinator that relays."""
        self._data = Path(settings.data)
        self._bounds = Bounds(settings.fetch_timeout, settings.max_repository)
        self._member = member
        self._kinds = kinds
        self._ask = ask
        self._here = here
        self._clock = clock
        self._followed = asyncio.Event()

    async def replicate(self, run: Run, find: Callable[[str], Awaitable[Watch | None]]) -> dict[str, Any]:
        """The kind of task: ends when the copy that was ordered is complete, for whoever wants to see it, or when
        none is wanted here any more."""
        source = decoded(run.spec, ReplicateArguments).source
        while True:
            followed, watch = self._followed, await find(source)
            if watch is not None and (watch.held.primary or watch.last_looked):
                return {"source": source}
            with suppress(TimeoutError):  # (`wait_for` forgets a cancellation that comes with what it waited for)
                async with asyncio.timeout(_LOOK_SECONDS):
                    await followed.wait()
                continue
            try:
                await self._ask(CopyWanted(source, open=False), _TICKET_SECONDS)
            except NotAllowed as error:
                return {"source": source, "withdrawn": error.message}
            except Unavailable:  # the coordinator is away; the copy may be made all the same
                continue

    async def follow(self, watch: Watch) -> str:
        """Bring a replica to where its holder's mirror stands; empty, or why that cannot be done yet."""
        held = watch.held
        try:
            if held.kind == "git" and not await self._reached(held):  # nothing else has a mirror
                if watch.last_looked or watch.failures < _TRIES:
                    return "nobody who has it can be reached"
                await self._ask(CopyWanted(held.source, open=False), _TICKET_SECONDS)
                if reason := await self._anew(held):
                    return reason
            await self._ask(Copied(held.source), _TICKET_SECONDS)
        except SkepError as error:  # the coordinator is away, or it is not wanted here any more
            return error.message
        finally:
            self._followed.set()
            self._followed = asyncio.Event()
        return ""

    async def recover(self, held: Held, failures: int) -> None:
        """The mirror is lost, or was never here: somebody else's copy is a better beginning than a clone. NotAllowed:
        another holds it now. Unavailable: whoever has it may be there at the next try."""
        folder = folder_of(self._data, held.source)
        if await asyncio.to_thread(repository.read_all, folder):
            return
        try:
            await self._ask(CopyWanted(held.source, open=False), _TICKET_SECONDS)
            await self._through(held, nothing_told)  # the upstream is asked for what is newer
            if not await asyncio.to_thread(repository.read_all, folder):
                raise Unavailable("whoever has it gave nothing")
        except NotFound as error:
            log.info("no copy of %s through a tunnel: %s", held.source, error.message)
        except Unavailable as error:
            if failures < _TRIES_OF_HOLDER:
                raise
            log.warning("no copy of %s through a tunnel, it is cloned: %s", held.source, error.message)

    async def _reached(self, held: Held) -> bool:
        try:
            await self._through(held, partial(self._told, held.source))
        except SkepError as error:
            log.info("no copy of %s through a tunnel: %s", held.source, error.message)
            return False
        return True

    async def _through(self, held: Held, told: Told) -> None:
        """NotFound: nobody has a copy. Unavailable: nobody who has one can be reached."""
        folder = folder_of(self._data, held.source)
        opened, now = partial(self._opened, held.source), self._clock.now()
        found = await fetch_through(folder, held.url, opened, told, self._bounds, lambda progress: None, now)
        if isinstance(found, Failure):
            raise Unavailable(found.message)

    async def _told(self, source: str) -> Mapping[str, str]:
        found = await self._ask(CopyWanted(source, open=False), _TICKET_SECONDS)
        return found.held.told if isinstance(found, CopyFrom) else {}

    @asynccontextmanager
    async def _opened(self, source: str) -> AsyncIterator[Stream]:
        """Each git process needs a tunnel of its own, and each tunnel a ticket."""
        found = await self._ask(CopyWanted(source), _TICKET_SECONDS)
        if not isinstance(found, CopyFrom) or not found.ticket:
            raise NotFound(f"nobody has a copy of {source}")
        here = self._here()
        async with dial(found.address or here.targets[0], found.ticket, self._member, here.ca) as stream:
            yield stream

    async def _anew(self, held: Held) -> str:
        """From the upstream, when it was tried often enough to find somebody who has it."""
        kind = self._kinds[held.kind]
        found = await kind.look(held)
        brought = await kind.fetch(held, found, lambda progress: None) if isinstance(found, Moved) else found
        return brought.message if isinstance(brought, Failure) else ""
