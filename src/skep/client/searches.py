"""Saved searches over HTTP."""

from skep.client.transport import API, Noun
from skep.search.api import SavedSearch, Searches, SearchSpec


class SavedSearches(Noun):
    at = f"{API}/searches"

    def save(self, name: str, query: str, *, topic: str = "", first: bool = False) -> SavedSearch:
        spec = SearchSpec(query, topic, first)
        return self._transport.call("PUT", self._of(name), SavedSearch, body=spec)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", self._of(name), type(None))

    def list(self) -> list[SavedSearch]:
        return self._transport.call("GET", self.at, Searches).searches
