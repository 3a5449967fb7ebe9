"""DataONE over HTTP."""

from skep.client.transport import API, Noun
from skep.dataone.api import IndexEdit, Indexing, MemberNode, MemberNodes, NodeEdit, Preview, Story


class DataOne(Noun):
    at = f"{API}/dataone/nodes"

    def nodes(self) -> list[MemberNode]:
        return self._transport.call("GET", self.at, MemberNodes).nodes

    def node(self, id: str) -> MemberNode:
        """By its identifier or that of its source."""
        return self._transport.call("GET", self._of(id), MemberNode)

    def approve(self, id: str) -> MemberNode:
        """A node that registered itself is harvested from now on."""
        return self._transport.call("POST", self._of(id, "approve"), MemberNode)

    def set(self, id: str, edit: NodeEdit) -> MemberNode:
        return self._transport.call("PATCH", self._of(id), MemberNode, body=edit)

    def reconcile(self, id: str, since: float | None = None) -> MemberNode:
        """List everything again, or what is newer than `since` (seconds)."""
        return self._transport.call("POST", self._of(id, "reconcile"), MemberNode, body={"since": since})

    def preview(self, id: str, since: float | None = None) -> Preview:
        """What a harvest would bring, from where the next one begins or from `since` (seconds) on."""
        query = {} if since is None else {"since": str(since)}
        return self._transport.call("GET", self._of(id, "preview"), Preview, query=query)

    def replay(self, id: str, pid: str = "") -> MemberNode:
        """Try what is parked again, or one object whatever its state."""
        return self._transport.call("POST", self._of(id, "replay"), MemberNode, body={"pid": pid})

    def explain(self, pid: str) -> Story:
        return self._transport.call("GET", f"{API}/dataone/explain", Story, query={"pid": pid})

    def index(self, *, bulk: bool | None = None, audit: bool = False) -> Indexing:
        """How the index stands, after bulk-load mode was begun or ended, or everything compared with it."""
        path = f"{API}/dataone/index"
        if audit:
            self._transport.call("POST", f"{path}/audit", Indexing)
        if bulk is not None:
            return self._transport.call("PATCH", path, Indexing, body=IndexEdit(bulk))
        return self._transport.call("GET", path, Indexing)
