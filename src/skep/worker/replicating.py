"""The kind of task that copies a source to this worker: from whoever has it, from the upstream as a last resort."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from skep.link.messages import AnswerBody, AskBody
from skep.model.copying import Copied, CopyFrom, CopyWanted, Kept
from skep.model.source import Failure, Held
from skep.model.task import Run
from skep.sources.base import Kind, Moved
from skep.worker.doer import TaskFailed
from skep.worker.poller import Poller

log = logging.getLogger(__name__)

KIND = "replicate"


class Replicating:
    def __init__(
        self, poller: Poller, kinds: Mapping[str, Kind], ask: Callable[[AskBody], Awaitable[AnswerBody]]
    ) -> None:
        self._poller = poller
        self._kinds = kinds
        self._ask = ask

    async def replicate(self, run: Run) -> dict[str, Any]:
        """Ends when this worker holds the source, or knows that it should not."""
        source = str(run.spec.arguments.get("source", ""))
        if await self._poller.find(source) is not None:
            return {"source": source, "from": "here"}
        found = await self._ask(CopyWanted(source, run.task, run.attempt))
        if not isinstance(found, CopyFrom):
            raise TaskFailed(f"{source} is no longer wanted here")
        held = found.held
        where = await self._copy(held)
        answer = await self._ask(Copied(source, held.epoch, run.task, run.attempt))
        if not isinstance(answer, Kept) or not answer.done:
            if await self._poller.find(source) is None:
                await self._kinds[held.kind].remove(held)
            raise TaskFailed(f"{source} is no longer wanted here")
        return {"source": source, "from": where}

    async def _copy(self, held: Held) -> str:
        kind = self._kinds[held.kind]
        found = await kind.look(held)
        if isinstance(found, Moved):
            brought = await kind.fetch(held, found, lambda progress: None)
            if isinstance(brought, Failure):
                raise TaskFailed(brought.message)
        elif isinstance(found, Failure):
            raise TaskFailed(found.message)
        return "upstream"
