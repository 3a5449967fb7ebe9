"""A manager takes index requests out of the space `index`, one context for each, and keeps each until it has ended.

It has no database: it speaks only the link. Killed at any moment it loses nothing, because a request comes back when
its lease is over, and does nothing twice, because a context is made once for its request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.ids import new_id
from skep.base.logs import LineBuffer
from skep.base.loops import first_of, kept
from skep.fleet.api import Offer
from skep.rpc.client import Peer
from skep.rpc.connect import Dial
from skep.rpc.messages import AnswerBody, AskBody
from skep.spaces.api import Acknowledge, Get, Got, Keep, Taken, Typed
from skep.tasks.model import Await, ContextSpec, Ended, Submit, TaskSpec

log = logging.getLogger(__name__)

SPACE = "index"
_REQUEST = ("request", Typed("str"), Typed("str"))
#: each mostly waits for its context; what waits behind them is found out about late
_AT_ONCE = 32
_LEASE, _KEEP_EVERY = 60.0, 20.0
_WAIT = 30.0
_PAUSE = 1.0
#: tries of the first step; see worker/indexing.py for the others
_RETRIES, _BACKOFF = 4, 5.0


class Manager:
    def __init__(self, ask: Callable[[AskBody], Awaitable[AnswerBody]], clock: Clock, at_once: int = _AT_ONCE) -> None:
        self._ask = ask
        self._clock = clock
        self._at_once = at_once
        #: by ticket: a request whose lease was lost may be taken again while it is still in hand
        self._working: dict[str, str] = {}

    @property
    def status(self) -> str:
        return ", ".join(sorted(self._working.values())) or "idle"

    async def run(self) -> None:
        """Until cancelled."""
        hands = [asyncio.create_task(self._serve()) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*hands)
        finally:
            for hand in hands:
                hand.cancel()
            await asyncio.gather(*hands, return_exceptions=True)

    async def _serve(self) -> None:
        while True:
            try:
                ticket = new_id("tkt", self._clock.now())
                got = await self._ask(Get(SPACE, _REQUEST, ticket, wait=_WAIT, lease=_LEASE))
                if isinstance(got, Got):
                    async with self._kept(got.taken):
                        await self._index(got.taken)
                    await self._ask(Acknowledge(SPACE, got.taken.seq, ticket))
            except SkepError as error:
                log.warning("an index request could not be served: %s", error.message)
                await asyncio.sleep(_PAUSE)

    async def _index(self, taken: Taken) -> None:
        source, way = str(taken.fields[1]), str(taken.fields[2])
        self._working[taken.ticket] = f"index {source}"
        try:
            made = await self._ask(Submit(context_for(source, way), f"request:{source}", f"index:{taken.seq}"))
            while isinstance(made, Ended) and made.state == "RUNNING":
                made = await self._ask(Await(made.context, _WAIT))
            if isinstance(made, Ended):
                log.info("%s: %s", self._working[taken.ticket], summary(made))
        finally:
            del self._working[taken.ticket]

    @asynccontextmanager
    async def _kept(self, taken: Taken) -> AsyncIterator[None]:
        keeping = asyncio.create_task(self._keep(taken))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, taken: Taken) -> None:
        while True:
            await asyncio.sleep(_KEEP_EVERY)
            await self._ask(Keep(SPACE, taken.seq, taken.ticket, lease=_LEASE))


def context_for(source: str, way: str) -> ContextSpec:
    """One task at first; for more than a little it adds the others itself."""
    task = TaskSpec(
        "plan",
        "index",
        arguments={"way": way},
        source=source,
        holder=True,
        priority=1,  # a change of a few files goes before the batches of large sources
        retries=_RETRIES,
        backoff=_BACKOFF,
    )
    return ContextSpec(f"{'reindex' if way == 'whole' else 'index'} {source}", (task,))


def summary(ended: Ended) -> str:
    """The fold of a context: what its tasks found, in one line."""
    results = [result for result in ended.results.values() if isinstance(result, dict)]
    documents = sum(int(result.get("documents", 0)) for name, result in ended.results.items() if name != "publish")
    commit = next((result["commit"] for result in results if result.get("commit")), "nothing")
    return f"{ended.state} at {commit}, {documents} document(s)"


async def manage(
    link: Dial | str, token: str, clock: Clock, member: str = "", name: str = "", lines: LineBuffer | None = None
) -> None:
    """A manager with a stream of its own, until cancelled or until a newer one takes its place."""
    peer = Peer(link, token, ("manager",), clock, member=member, offer=Offer(mirror=False, name=name))
    manager = Manager(peer.ask, clock)
    peer.status = lambda: manager.status
    told = [kept(partial(lines.run, peer.ask))] if lines is not None else []
    await first_of(peer.run(), kept(manager.run), *told)
