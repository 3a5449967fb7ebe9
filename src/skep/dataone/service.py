"""DataONE behind one name: what we know, whom we know it from, and who keeps copies."""

import asyncio

import msgspec

from skep.dataone.harvests import Harvests
from skep.dataone.nodes import Nodes
from skep.dataone.replication import Replication
from skep.dataone.store import Store

#: seconds between two looks at who is due
_PACE = 2.0


class DataOne(msgspec.Struct, frozen=True):
    store: Store
    nodes: Nodes
    harvests: Harvests
    replication: Replication

    async def follow(self) -> None:
        """For ever: nodes are harvested and asked for copies when it is time."""
        while True:
            await self.nodes.order()
            if not await self.replication.step():
                await asyncio.sleep(_PACE)
