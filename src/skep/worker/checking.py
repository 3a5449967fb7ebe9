"""The kind `fsck`: is everything that a mirror's refs lead to there and readable?"""

from collections.abc import Mapping
from typing import Any

from skep.model.task import Run
from skep.sources.base import Kind
from skep.worker.doer import TaskFailed
from skep.worker.poller import Poller


class Checking:
    def __init__(self, poller: Poller, kinds: Mapping[str, Kind]) -> None:
        self._poller = poller
        self._kinds = kinds

    async def fsck(self, run: Run) -> dict[str, Any]:
        watch = await self._poller.find(run.spec.source)
        if watch is None:
            raise TaskFailed(f"{run.spec.source or 'no source'} is not mirrored here")
        failure = await self._kinds[watch.held.kind].check(watch.held)
        if failure is not None:
            raise TaskFailed(failure.message)
        return {"source": watch.source, "sound": True}
