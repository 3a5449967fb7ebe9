"""Copies of sources that others hold: from whoever has them, from the upstream as a last resort."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from skep.clock import Clock
from skep.config import Settings
from skep.errors import NotAllowed, NotFound, SkepError, Unavailable
from skep.link.carry import dial
from skep.link.dial import Dial
from skep.link.messages import AnswerBody, AskBody
from skep.model.copying import Copied, CopyFrom, CopyWanted
from skep.model.kinds import ReplicateArguments, decoded
from skep.model.source import Failure, Held
from skep.model.task import Run
from skep.sources.base import Kind, Moved
from skep.sources.git import refs
from skep.sources.git.copying import Bounds, Told, fetch_through, nothing_told
from skep.sources.git.mirror import folder_of
from skep.streams import Stream
from skep.worker.watch import Watch

log = logging.getLogger(__name__)

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
        if await asyncio.to_thread(refs.read_all, folder):
            return
        try:
            await self._ask(CopyWanted(held.source, open=False), _TICKET_SECONDS)
            await self._through(held, nothing_told)  # the upstream is asked for what is newer
            if not await asyncio.to_thread(refs.read_all, folder):
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
