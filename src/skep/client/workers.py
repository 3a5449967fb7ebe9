"""Workers over HTTP, and the tokens that they join with."""

from collections.abc import Sequence
from urllib.parse import quote

from skep.base.answers import MemberToken, NewMemberToken, TaskLoad, WorkerMatch, WorkerView
from skep.client.transport import API, Noun


class Workers(Noun):
    at = f"{API}/workers"

    def select(self, selector: str) -> list[WorkerMatch]:
        """Which workers it chooses, and why not the others."""
        query = {"selector": selector}
        return self._transport.call("GET", f"{API}/workers/select", list[WorkerMatch], query=query)

    def load(self, label: str = "") -> TaskLoad:
        """What there is to do for those with this label."""
        return self._transport.call("GET", f"{API}/workers/load", TaskLoad, query={"label": label})

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
        self._transport.call("DELETE", self._of("tokens") + f"/{quote(id, safe='')}", type(None))

    def drain(self, worker: str) -> None:
        """What it holds goes to others."""
        self._transport.call("POST", self._of(worker, "drain"), type(None))

    def resume(self, worker: str) -> None:
        self._transport.call("POST", self._of(worker, "resume"), type(None))

    def forget(self, worker: str) -> None:
        """It will not come back."""
        self._transport.call("DELETE", self._of(worker), type(None))

    def list(self) -> list[WorkerView]:
        return self._transport.call("GET", self.at, list[WorkerView])
