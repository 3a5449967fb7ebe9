"""Results over HTTP."""

from collections.abc import Iterator, Sequence

import msgspec

from skep.base.answers import Page
from skep.client.transport import API, Noun, pages
from skep.results.api import Aggregate, Draft, NewResults, Recorded, Result, Series


class Results(Noun):
    """`where` are filters such as `metric=time`, `group~parse*` or `value>=1.5`; all of them hold."""

    at = f"{API}/results"

    def record(
        self, task: str, results: Sequence[Draft], *, attempt: int | None = None, first: int | None = None
    ) -> int:
        """How many were not known before; with `first`, the number of the first of them, it may be done again."""
        body = NewResults(task, list(results), attempt, first)
        return self._transport.call("POST", self.at, Recorded, body=body, repeatable=first is not None).recorded

    def show(self, id: str) -> Result:
        return self._transport.call("GET", self._of(id), Result)

    def aggregate(self, where: Sequence[str] = (), by: Sequence[str] = ()) -> list[Aggregate]:
        query = {"where": where, "by": ",".join(by)}
        return self._transport.call("GET", self._of("aggregate"), Page[Aggregate], query=query).items

    def series(self, where: Sequence[str] = ()) -> list[Series]:
        return self._transport.call("GET", self._of("series"), Page[Series], query={"where": where}).items

    def points(self, series: Series, limit: int = 10_000) -> list[Result]:
        """Oldest commit first."""
        query = {**msgspec.structs.asdict(series), "unit": None, "limit": limit}
        return self._transport.call("GET", self._of("points"), Page[Result], query=query).items

    def export(
        self, where: Sequence[str] = (), *, fields: Sequence[str] = (), order: str = "at", format: str = "jsonl"
    ) -> Iterator[str]:
        """The lines of a file with everything that matches."""
        query = {"where": where, "fields": ",".join(fields), "order": order, "format": format}
        lines = self._transport.lines(self._of("export"), query=query, headers={}, timeout=self._transport.timeout)
        next(lines)
        return lines

    def list(self, where: Sequence[str] = (), *, order: str = "-at", limit: int = 100) -> Iterator[Result]:
        """All that match, in pages of `limit`."""
        return pages(self._transport, self.at, Page[Result], limit, where=where, order=order)
