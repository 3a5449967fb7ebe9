"""Saved searches over HTTP."""

from urllib.parse import quote

from skep.client.transport import API, Transport
from skep.model.saved import SavedSearch, Searches, SearchSpec

_PATH = f"{API}/searches"


class SavedSearches:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def save(self, name: str, query: str, *, topic: str = "", first: bool = False) -> SavedSearch:
        spec = SearchSpec(query, topic, first)
        return self._transport.call("PUT", f"{_PATH}/{quote(name, safe='')}", SavedSearch, body=spec)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", f"{_PATH}/{quote(name, safe='')}", type(None))

    def list(self) -> list[SavedSearch]:
        return self._transport.call("GET", _PATH, Searches).searches
