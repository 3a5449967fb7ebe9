"""Credentials through the API: secrets go in and never come out."""

from urllib.parse import quote

from skep.client.transport import API, Transport
from skep.model.credential import CredentialInfo, Use


class Credentials:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def put(
        self,
        name: str,
        host: str,
        token: str,
        *,
        source: str = "",
        use: Use = "fetch",
        user: str = "x-access-token",
        public: bool = False,
    ) -> CredentialInfo:
        body = {"host": host, "token": token, "source": source, "use": use, "user": user, "public": public}
        return self._transport.call("PUT", _path(name), CredentialInfo, body=body)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", _path(name), type(None))

    def list(self) -> list[CredentialInfo]:
        return self._transport.call("GET", f"{API}/credentials", list[CredentialInfo])


def _path(name: str) -> str:
    return f"{API}/credentials/{quote(name, safe='')}"
