"""Benchmarks over HTTP."""

from collections.abc import Iterator

from skep.base.answers import Page
from skep.benchmarks.api import Benchmark, BenchmarkSpec, Evaluation, Step, Want
from skep.client.transport import API, Noun, pages
from skep.results.api import Series


class Benchmarks(Noun):
    at = f"{API}/benchmarks"

    def add(self, spec: BenchmarkSpec) -> Benchmark:
        return self._transport.call("POST", self.at, Benchmark, body=spec)

    def show(self, name: str) -> Benchmark:
        return self._transport.call("GET", self._of(name), Benchmark)

    def pause(self, name: str) -> Benchmark:
        return self._transport.call("POST", self._of(name, "pause"), Benchmark)

    def resume(self, name: str) -> Benchmark:
        return self._transport.call("POST", self._of(name, "resume"), Benchmark)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", self._of(name), type(None))

    def want(self, name: str, revs: str, *, bisect: bool = False, again: bool = False) -> Benchmark:
        """Measure a commit, or `OLD..NEW`."""
        return self._transport.call("POST", self._of(name, "wants"), Benchmark, body=Want(revs, bisect, again))

    def steps(self, name: str, limit: int = 100) -> list[Step]:
        return self._transport.call("GET", self._of(name, "steps"), Page[Step], query={"limit": limit}).items

    def series(self, name: str) -> list[Series]:
        return self._transport.call("GET", self._of(name, "series"), Page[Series]).items

    def evaluations(self, name: str = "") -> list[Evaluation]:
        """Files that tasks made of its results; their bytes are at /evaluations/ID."""
        return self._transport.call("GET", f"{API}/evaluations", Page[Evaluation], query={"benchmark": name}).items

    def list(self, *, limit: int = 100) -> Iterator[Benchmark]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, self.at, Page[Benchmark], limit)
