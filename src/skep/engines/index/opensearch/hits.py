"""A running search on a server."""

import logging

import msgspec

from skep.engines.index.opensearch.node import Node
from skep.engines.index.opensearch.view import Parts, State, View
from skep.engines.index.trigram.hits import Asked, TrigramHits
from skep.engines.index.trigram.lanes import Lanes
from skep.model.search import FileHit

log = logging.getLogger(__name__)


class OpenSearchHits(TrigramHits):
    def __init__(self, lanes: Lanes, node: Node, state: State, *asked: *Asked) -> None:
        self._parts = Parts(node, state, asked)
        view = View(self._parts, state.standings)  # type: ignore[arg-type]  # iterated once, as a tuple would be
        super().__init__(lanes, view, _notice, *asked)

    async def __anext__(self) -> FileHit:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            if self._parts.cut:
                self.partial = True
                self.counted = msgspec.structs.replace(self.counted, exact=False)
            raise


def _notice(damaged: dict[str, str]) -> None:
    """Shards that are made for one search have nobody who could set them aside."""
    log.error("candidates could not be read", extra={"reasons": sorted(damaged.values())})
