"""Credentials through the API: secrets go in and never come out."""

from skep.client.transport import API, Noun
from skep.sources.model import CredentialInfo, Use


class Credentials(Noun):
    at = f"{API}/credentials"

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
        return self._transport.call("PUT", self._of(name), CredentialInfo, body=body)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", self._of(name), type(None))

    def list(self) -> list[CredentialInfo]:
        return self._transport.call("GET", self.at, list[CredentialInfo])
