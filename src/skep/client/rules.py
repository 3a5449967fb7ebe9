"""Rules over HTTP."""

from collections.abc import Iterator

from skep.base.answers import Page
from skep.client.transport import API, Noun, pages
from skep.rules.api import Rule, RuleEdit, RuleSpec
from skep.tasks.model import Context


class Rules(Noun):
    at = f"{API}/rules"

    def create(self, spec: RuleSpec) -> Rule:
        return self._transport.call("POST", self.at, Rule, body=spec)

    def show(self, name: str) -> Rule:
        return self._transport.call("GET", self._of(name), Rule)

    def update(self, name: str, edit: RuleEdit) -> Rule:
        """What the edit does not give stays."""
        return self._transport.call("PATCH", self._of(name), Rule, body=edit)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", self._of(name), type(None))

    def fire(self, name: str, source: str = "") -> Context:
        """Now, for the newest commit of a source."""
        return self._transport.call("POST", self._of(name, "fire"), Context, body={"source": source})

    def list(self, *, limit: int = 100) -> Iterator[Rule]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, self.at, Page[Rule], limit)
