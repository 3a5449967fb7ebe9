"""Lists of sources over HTTP."""

from collections.abc import Iterator

from skep.base.answers import Page
from skep.base.caller import Visibility
from skep.client.transport import API, Noun, pages
from skep.sources.model import ListedSource, ListProblem, SourceList


class Lists(Noun):
    """A list is named by its id."""

    at = f"{API}/lists"

    def add(
        self, url: str, *, visibility: Visibility = "public", forks: bool = True, archived: bool = True
    ) -> SourceList:
        body = {"url": url, "visibility": visibility, "forks": forks, "archived": archived}
        return self._transport.call("POST", self.at, SourceList, body=body)

    def show(self, id: str) -> SourceList:
        return self._transport.call("GET", self._of(id), SourceList)

    def entries(self, id: str, *, gone: bool = False, limit: int = 100) -> Iterator[ListedSource]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, self._of(id, "entries"), Page[ListedSource], limit, gone="true" if gone else None)

    def problems(self, id: str) -> list[ListProblem]:
        return self._transport.call("GET", self._of(id, "problems"), Page[ListProblem]).items

    def read(self, id: str) -> SourceList:
        """Now."""
        return self._transport.call("POST", self._of(id, "read"), SourceList)

    def confirm(self, id: str, version: str) -> SourceList:
        """Let this version of it remove what waits."""
        return self._transport.call("POST", self._of(id, "confirm"), SourceList, body={"version": version})

    def remove(self, id: str) -> None:
        self._transport.call("DELETE", self._of(id), type(None))

    def list(self) -> list[SourceList]:
        return self._transport.call("GET", self.at, Page[SourceList]).items
