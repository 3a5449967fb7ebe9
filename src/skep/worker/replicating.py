"""The kind of task that copies a source to this worker: from whoever has it, from the upstream as a last resort."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from skep.clock import Clock
from skep.config import Settings
from skep.errors import NotFound, SkepError, Unavailable
from skep.link.carry import dial
from skep.link.dial import Dial
from skep.link.messages import AnswerBody, AskBody
from skep.model.copying import Copied, CopyFrom, CopyWanted, Kept
from skep.model.source import Failure, Held
from skep.model.task import Run
from skep.sources.base import Kind, Moved
from skep.sources.git.copying import Bounds, fetch_through
from skep.sources.git.mirror import folder_of
from skep.streams import Stream
from skep.worker.doer import TaskFailed
from skep.worker.poller import Poller

log = logging.getLogger(__name__)

KIND = "replicate"
#: a coordinator that is away keeps nobody from asking the upstream
_TICKET_SECONDS = 30.0


class Replicating:
    def __init__(
        self,
        settings: Settings,
        member: str,
        poller: Poller,
        kinds: Mapping[str, Kind],
        ask: Callable[[AskBody, float | None], Awaitable[AnswerBody]],
        here: Callable[[], Dial],
        clock: Clock,
    ) -> None:
        """`here`: the coordinator that relays."""
        self._data = Path(settings.data)
        self._bounds = Bounds(settings.fetch_timeout, settings.max_repository)
        self._member = member
        self._poller = poller
        self._kinds = kinds
        self._ask = ask
        self._here = here
        self._clock = clock

    async def replicate(self, run: Run) -> dict[str, Any]:
        """Ends when this worker holds the source, or knows that it should not."""
        source = str(run.spec.arguments.get("source", ""))
        if await self._poller.find(source) is not None:
            return {"source": source, "from": "here"}
        found = await self._ask(CopyWanted(source, run.task, run.attempt, open=False), None)
        if not isinstance(found, CopyFrom):
            raise TaskFailed(f"{source} is no longer wanted here")
        held = found.held
        where = "nowhere"  # only git has a mirror to copy
        if held.kind == "git":
            wanted = CopyWanted(source, run.task, run.attempt)
            where = "holder" if await self._through(held, wanted) else await self._anew(held, last=run.last)
        answer = await self._ask(Copied(source, held.epoch, run.task, run.attempt), None)
        if not isinstance(answer, Kept) or not answer.done:
            if await self._poller.find(source) is None:
                await self._kinds[held.kind].remove(held)
            raise TaskFailed(f"{source} is no longer wanted here")
        return {"source": source, "from": where}

    async def recover(self, held: Held) -> None:
        """The mirror is lost, or was never here: somebody else's copy is a better beginning than a clone. NotAllowed:
        another holds it now."""
        if folder_of(self._data, held.source).exists():
            return
        with suppress(Unavailable, NotFound):
            await self._ask(CopyWanted(held.source, "", 0, open=False), _TICKET_SECONDS)
            await self._through(held, CopyWanted(held.source, "", 0))

    async def _through(self, held: Held, wanted: CopyWanted) -> bool:
        """False: nobody who has it can be reached."""
        folder = folder_of(self._data, held.source)
        opened = partial(self._opened, wanted)
        try:
            now = self._clock.now()
            found = await fetch_through(folder, held.url, opened, self._bounds, lambda progress: None, now)
        except SkepError as error:
            log.info("no copy of %s through a tunnel: %s", held.source, error.message)
            return False
        if isinstance(found, Failure):
            log.info("no copy of %s through a tunnel: %s", held.source, found.message)
        return not isinstance(found, Failure)

    @asynccontextmanager
    async def _opened(self, wanted: CopyWanted) -> AsyncIterator[Stream]:
        """Each git process needs a tunnel of its own, and each tunnel a ticket."""
        found = await self._ask(wanted, _TICKET_SECONDS)
        if not isinstance(found, CopyFrom) or not found.ticket:
            raise NotFound(f"nobody has a copy of {wanted.source}")
        here = self._here()
        async with dial(found.address or here.targets[0], found.ticket, self._member, here.ca) as stream:
            yield stream

    async def _anew(self, held: Held, *, last: bool) -> str:
        """From the upstream, when it was tried often enough to find somebody who has it."""
        kind = self._kinds[held.kind]
        if not last:
            raise TaskFailed(f"nobody who has {held.source} can be reached yet")
        found = await kind.look(held)
        brought = await kind.fetch(held, found, lambda progress: None) if isinstance(found, Moved) else found
        if isinstance(brought, Failure):
            raise TaskFailed(brought.message)
        return "upstream"
