"""DataONE over HTTP."""

from urllib.parse import quote

from skep.client.transport import API, Transport
from skep.model.dataone import IndexEdit, Indexing, MemberNode, MemberNodes, NodeEdit, Story

_NODES = f"{API}/dataone/nodes"


class DataOne:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def nodes(self) -> list[MemberNode]:
        return self._transport.call("GET", _NODES, MemberNodes).nodes

    def node(self, id: str) -> MemberNode:
        """By its identifier or that of its source."""
        return self._transport.call("GET", _path(id), MemberNode)

    def approve(self, id: str) -> MemberNode:
        """A node that registered itself is harvested from now on."""
        return self._transport.call("POST", f"{_path(id)}/approve", MemberNode)

    def set(self, id: str, edit: NodeEdit) -> MemberNode:
        return self._transport.call("PATCH", _path(id), MemberNode, body=edit)

    def reconcile(self, id: str, since: float | None = None) -> MemberNode:
        """List everything again, or what is newer than `since` (seconds)."""
        return self._transport.call("POST", f"{_path(id)}/reconcile", MemberNode, body={"since": since})

    def replay(self, id: str, pid: str = "") -> MemberNode:
        """Try what is parked again, or one object whatever its state."""
        return self._transport.call("POST", f"{_path(id)}/replay", MemberNode, body={"pid": pid})

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


def _path(id: str) -> str:
    return f"{_NODES}/{quote(id, safe='')}"
