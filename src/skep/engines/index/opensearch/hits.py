"""A running search on a server."""

from concurrent.futures import Executor

import msgspec

from skep.engines.index.base import Visible
from skep.engines.index.opensearch.node import Node
from skep.engines.index.opensearch.view import Parts, State, View
from skep.engines.index.trigram.hits import TrigramHits
from skep.model.search import FileHit, Limits, Query


class OpenSearchHits(TrigramHits):
    def __init__(
        self, executor: Executor, node: Node, state: State, query: Query, visible: Visible, limits: Limits
    ) -> None:
        self._parts = Parts(node, state, query, visible, limits)
        view = View(self._parts, state.standings)  # type: ignore[arg-type]  # iterated once, as a tuple would be
        super().__init__(executor, view, query, visible, limits)

    async def __anext__(self) -> FileHit:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            if self._parts.cut:
                self.partial = True
                self.counted = msgspec.structs.replace(self.counted, exact=False)
            raise
