"""Benchmarks over HTTP."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from skep.client.transport import API, Transport, pages
from skep.model.answers import Page
from skep.model.benchmark import Benchmark, BenchmarkSpec, Evaluation, Step, Want
from skep.model.result import Series


class _Steps(msgspec.Struct):
    items: list[Step]


class _Curves(msgspec.Struct):
    items: list[Series]


class _Evaluations(msgspec.Struct):
    items: list[Evaluation]


class Benchmarks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def add(self, spec: BenchmarkSpec) -> Benchmark:
        return self._transport.call("POST", f"{API}/benchmarks", Benchmark, body=spec)

    def show(self, name: str) -> Benchmark:
        return self._transport.call("GET", _path(name), Benchmark)

    def pause(self, name: str) -> Benchmark:
        return self._transport.call("POST", f"{_path(name)}/pause", Benchmark)

    def resume(self, name: str) -> Benchmark:
        return self._transport.call("POST", f"{_path(name)}/resume", Benchmark)

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", _path(name), type(None))

    def want(self, name: str, revs: str, *, bisect: bool = False, again: bool = False) -> Benchmark:
        """Measure a commit, or `OLD..NEW`."""
        return self._transport.call("POST", f"{_path(name)}/wants", Benchmark, body=Want(revs, bisect, again))

    def steps(self, name: str, limit: int = 100) -> list[Step]:
        return self._transport.call("GET", f"{_path(name)}/steps", _Steps, query={"limit": limit}).items

    def series(self, name: str) -> list[Series]:
        return self._transport.call("GET", f"{_path(name)}/series", _Curves).items

    def evaluations(self, name: str = "") -> list[Evaluation]:
        """Files that tasks made of its results; their bytes are at /evaluations/ID."""
        return self._transport.call("GET", f"{API}/evaluations", _Evaluations, query={"benchmark": name}).items

    def list(self, *, limit: int = 100) -> Iterator[Benchmark]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, f"{API}/benchmarks", Page[Benchmark], limit)


def _path(name: str) -> str:
    return f"{API}/benchmarks/{quote(name, safe='')}"
