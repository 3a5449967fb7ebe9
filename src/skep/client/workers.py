"""Workers over HTTP, and the tokens that they join with."""

from collections.abc import Sequence
from urllib.parse import quote

from skep.client.transport import API, Transport
from skep.model.answers import MemberToken, NewMemberToken, WorkerMatch, WorkerView


class Workers:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def select(self, selector: str) -> list[WorkerMatch]:
        """Which workers it chooses, and why not the others."""
        query = {"selector": selector}
        return self._transport.call("GET", f"{API}/workers/select", list[WorkerMatch], query=query)

    def create_token(
        self,
        name: str = "",
        roles: Sequence[str] = ("worker",),
        *,
        shared: bool = False,
        expires_in: float | None = None,
    ) -> NewMemberToken:
        """For a worker or manager to join with; shown this once."""
        body = {"name": name, "roles": list(roles), "shared": shared, "expires_in": expires_in}
        return self._transport.call("POST", f"{API}/workers/tokens", NewMemberToken, body=body)

    def tokens(self) -> list[MemberToken]:
        return self._transport.call("GET", f"{API}/workers/tokens", list[MemberToken])

    def revoke_token(self, id: str) -> None:
        self._transport.call("DELETE", f"{API}/workers/tokens/{quote(id, safe='')}", type(None))

    def drain(self, worker: str) -> None:
        """What it holds goes to others."""
        self._transport.call("POST", f"{_worker(worker)}/drain", type(None))

    def resume(self, worker: str) -> None:
        self._transport.call("POST", f"{_worker(worker)}/resume", type(None))

    def forget(self, worker: str) -> None:
        """It will not come back."""
        self._transport.call("DELETE", _worker(worker), type(None))

    def list(self) -> list[WorkerView]:
        return self._transport.call("GET", f"{API}/workers", list[WorkerView])


def _worker(id: str) -> str:
    return f"{API}/workers/{quote(id, safe='')}"
