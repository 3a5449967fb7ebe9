"""One loop for each space in use: what is asked while a transaction runs is done in the next one, all of it at once."""

import asyncio
import copy
import itertools
import logging
from collections.abc import Iterable
from typing import Literal

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.spaces.api import Fields, Taken
from skep.spaces.batch import Deposit, End, Found, Pattern, Result, Turn, Want, channel, head_of, packed
from skep.storage.database import Bell, Database

log = logging.getLogger(__name__)

#: who waits looks again this often: another process may have died with a lease that nobody here knows of
_LOOK_SECONDS = 5.0
_IDLE_SECONDS = 60.0
_DEPOSITS_AT_ONCE = 512


class Serving:
    def __init__(self, db: Database, clock: Clock, space: str) -> None:
        self._db = db
        self._clock = clock
        self._space = space
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._ends: list[End] = []
        self._deposits: list[Deposit] = []
        self._fresh: list[Want] = []
        self._enrolled = Enrolled()
        #: something may have come or come back without passing through here
        self._stale = False
        self._lapse: float | None = None
        #: it serves nobody any more, and another one may begin
        self.over = False

    async def put(self, fields: Fields, id: str) -> int:
        deposit = Deposit(fields, packed(fields), head_of(fields[0]), id, asyncio.get_running_loop().create_future())
        self._deposits.append(deposit)
        self._wake.set()
        return await deposit.future

    async def end(
        self,
        kind: Literal["acknowledge", "give_back", "keep"],
        seq: int,
        ticket: str,
        *,
        again: bool = False,
        taker: str = "",
        lease: float = 0.0,
    ) -> None:
        end = End(kind, seq, ticket, asyncio.get_running_loop().create_future(), again, taker, lease)
        self._ends.append(end)
        self._wake.set()
        await end.future

    async def find(
        self,
        pattern: Pattern,
        wait: float,
        *,
        taker: str = "",
        ticket: str = "",
        lease: float = 0.0,
        again: bool = False,
    ) -> Found | None:
        """Enrolled before anything is looked at, so that nothing put meanwhile is missed."""
        loop = asyncio.get_running_loop()
        want = Want(next(self._numbers), pattern, loop.create_future(), taker, ticket, lease, again, once=wait <= 0)
        self._fresh.append(want)
        self._enrolled.add(want)
        self._wake.set()
        timer = loop.call_later(wait, _expire, want) if wait > 0 else None
        try:
            return await want.future
        except asyncio.CancelledError:
            if not want.future.cancelled() and not want.future.exception():  # served just when it was cancelled
                self._give_back(want.future.result())
            raise
        finally:
            self._enrolled.discard(want)
            if timer:
                timer.cancel()

    async def run(self) -> None:
        async with self._db.listen(channel(self._space)) as bell:
            hearing = asyncio.create_task(self._hear(bell))
            try:
                while await self._asked():
                    await self._turn()
            finally:
                self.over = True
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, bell: Bell) -> None:
        while True:
            if await bell.wait(_IDLE_SECONDS) and self._enrolled:
                self._stale = True
                self._wake.set()

    async def _asked(self) -> bool:
        """False when there was nothing to do for a while."""
        if not self._wake.is_set():
            try:
                async with asyncio.timeout(self._patience()):
                    await self._wake.wait()
            except TimeoutError:
                if not self._enrolled:
                    self.over = True
                    return False
                self._stale = True
        self._wake.clear()
        return True

    def _patience(self) -> float:
        if not self._enrolled:
            return _IDLE_SECONDS
        return max(0.01, min(_LOOK_SECONDS, (self._lapse or 1e18) - self._clock.now()))

    async def _turn(self) -> None:
        ends, self._ends = self._ends, []
        deposits, self._deposits = self._deposits[:_DEPOSITS_AT_ONCE], self._deposits[_DEPOSITS_AT_ONCE:]
        fresh, self._fresh = self._fresh, []
        looking = self._enrolled.all() if self._stale else [want for want in fresh if not want.future.done()]
        self._stale = False
        if self._deposits:
            self._wake.set()
        waiting = self._enrolled.meeting({(len(one.fields), one.head) for one in deposits}, len(deposits))
        turn = Turn(self._space, self._clock.now(), ends, deposits, looking, waiting)
        try:
            # who had taken what can be found out again: it is only taken again
            result = await self._db.write(turn.work, runtime=not deposits)
        except Exception as error:
            self._fail(turn, error)
        else:
            self._answer(turn, result)

    def _answer(self, turn: Turn, result: Result) -> None:
        for place, deposit in zip(result.places, turn.deposits, strict=True):
            if not deposit.future.done():
                deposit.future.set_result(place)
        for n, end in enumerate(turn.ends):
            if end.future.done():
                continue
            if n in result.refused:
                end.future.set_exception(result.refused[n])
            else:
                end.future.set_result(None)
        if turn.looking:
            self._lapse = result.lapse
        for want in {want.number: want for want in (*turn.looking, *turn.waiting)}.values():
            self._serve(want, result.served.get(want.number))

    def _serve(self, want: Want, found: Found | None) -> None:
        want.looked = True
        if found is None and not want.once:
            return
        self._enrolled.discard(want)
        if isinstance(found, Taken):
            self._lapse = min(self._lapse or found.lease_until, found.lease_until)
        if not want.future.done():
            want.future.set_result(found)
        else:
            self._give_back(found)

    def _give_back(self, found: Found | None) -> None:
        """Whoever wanted it has left meanwhile."""
        if isinstance(found, Taken):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.add_done_callback(asyncio.Future.exception)  # if it fails the lease will be over some time
            self._ends.append(End("give_back", found.seq, found.ticket, future))
            self._wake.set()

    def _fail(self, turn: Turn, error: Exception) -> None:
        """Who has waited longer may still be served later."""
        if not isinstance(error, SkepError):
            log.error("a turn of the space %s failed", self._space, exc_info=error)
            error = SkepError("the space failed", hint="the server's log says more")
        futures: Iterable[asyncio.Future[object]] = [
            *(deposit.future for deposit in turn.deposits),  # type: ignore[list-item]
            *(end.future for end in turn.ends),  # type: ignore[list-item]
            *(want.future for want in turn.looking if not want.looked),  # type: ignore[list-item]
        ]
        for future in futures:
            if not future.done():
                future.set_exception(copy.copy(error))


def _expire(want: Want) -> None:
    want.once = True
    if want.looked and not want.future.done():
        want.future.set_result(None)


class Enrolled:
    """Who waits, by the first field and by template."""

    def __init__(self) -> None:
        self._by: dict[tuple[int, int | None], dict[bytes, dict[int, Want]]] = {}
        self._all: dict[int, Want] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, want: Want) -> None:
        self._all[want.number] = want
        group = self._by.setdefault((want.pattern.arity, want.pattern.head), {})
        group.setdefault(want.pattern.key, {})[want.number] = want

    def discard(self, want: Want) -> None:
        if self._all.pop(want.number, None) is None:
            return
        group = self._by[want.pattern.arity, want.pattern.head]
        del group[want.pattern.key][want.number]
        if not group[want.pattern.key]:
            del group[want.pattern.key]
        if not group:
            del self._by[want.pattern.arity, want.pattern.head]

    def all(self) -> list[Want]:
        return list(self._all.values())

    def meeting(self, kinds: set[tuple[int, int]], most: int) -> list[Want]:
        """Who may be served by tuples of these kinds, `most` of them at most; oldest first."""
        keys = [key for arity, head in kinds for key in ((arity, head), (arity, None))]
        found: dict[int, Want] = {}
        for group in (self._by.get(key, {}) for key in keys):
            for wants in group.values():
                takers = itertools.islice((want for want in wants.values() if want.taker), most)
                found.update((want.number, want) for want in (*takers, *(w for w in wants.values() if not w.taker)))
        return [found[number] for number in sorted(found)]
