"""Rules over HTTP."""

from collections.abc import Iterator
from urllib.parse import quote

from skep.client.transport import API, Transport, pages
from skep.model.answers import Page
from skep.model.rule import Rule, RuleEdit, RuleSpec
from skep.model.task import Context


class Rules:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, spec: RuleSpec) -> Rule:
        return self._transport.call("POST", f"{API}/rules", Rule, body=spec)

    def show(self, name: str) -> Rule:
        return self._transport.call("GET", _path(name), Rule)

    def update(self, name: str, edit: RuleEdit) -> Rule:
        """What the edit does not give stays."""
        return self._transport.call("PATCH", _path(name), Rule, body=edit)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", _path(name), type(None))

    def fire(self, name: str, source: str = "") -> Context:
        """Now, for the newest commit of a source."""
        return self._transport.call("POST", f"{_path(name)}/fire", Context, body={"source": source})

    def list(self, *, limit: int = 100) -> Iterator[Rule]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, f"{API}/rules", Page[Rule], limit)


def _path(name: str) -> str:
    return f"{API}/rules/{quote(name, safe='')}"
