"""For benchmarks that decide by themselves what to measure: a subclass of Benchmark, added with `--code FILE`.

    from skep.benchmark import WAIT, Benchmark

    class Nightly(Benchmark):
        def generate_context(self, state):
            commits = self.history("v1.0..main")
            if state.get("done", 0) == len(commits):
                return WAIT
            commit = commits[state.get("done", 0)]
            state["done"] = state.get("done", 0) + 1
            return {"name": commit["id"], "tasks": [{"argv": ["./measure", commit["id"]]}]}

Only the standard library. What it asks goes through the API of tasks: docs/benchmarks.md.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from skep.task import _ask as ask

#: there is nothing to measure now; call again when something has changed
WAIT = object()


class Benchmark:
    #: name of the benchmark, and key -> state of the contexts it has generated
    name = ""
    generated: dict[str, str] = {}

    def generate_context(self, state: dict[str, Any]) -> Any:
        """A context as JSON, WAIT, or None when all is done. Called again after each context has ended; what is put
        into `state` is stored together with the context, and is there again in the next turn. A context's `key` names
        what it measures: the same key is never measured twice."""
        raise NotImplementedError

    def on_resubmit(self, state: dict[str, Any]) -> None:
        """It was begun again after a failure, perhaps on another worker."""

    def results(self, *where: str, limit: int = 1000) -> list[dict[str, Any]]:
        """What it has measured so far, the newest first; filters as of `skep result list`."""
        found: list[dict[str, Any]] = _call("results", {"where": list(where), "limit": limit})["results"]
        return found

    def history(self, revs: str) -> list[dict[str, Any]]:
        """First-parent commits of `REV` or `OLD..NEW`, oldest first: id, parent, made_at, author, subject."""
        found: list[dict[str, Any]] = _call("history", {"revs": revs})["commits"]
        return found


def turns() -> Iterator[dict[str, Any]]:
    """Each time something has changed and a context may be submitted."""
    stamp = ""
    while True:
        turn: dict[str, Any] = _call("next", {"stamp": stamp})
        if turn["free"] and turn["stamp"] != stamp:
            yield turn
        stamp = turn["stamp"]


def run(benchmark: Benchmark) -> None:
    begun = False
    for turn in turns():
        benchmark.name, benchmark.generated = turn["benchmark"], turn["generated"]
        state = turn["state"]
        if turn["resubmits"] and not begun:
            benchmark.on_resubmit(state)
        begun = True
        spec = benchmark.generate_context(state)
        if spec is None:
            return
        if spec is not WAIT:
            key = spec.pop("key", f"context-{len(benchmark.generated) + 1}")
            _call("submit", {"key": key, "spec": spec, "state": state})


def _call(name: str, body: dict[str, Any]) -> Any:
    return ask("POST", f"/benchmark/{name}?wait=30", body)


def main() -> None:
    """The code of a benchmark is run, and the last subclass in it."""
    code = os.environ.pop("SKEP_CODE")
    # now, when this interpreter has started: no variable of the task had a say in that
    os.environ.update(json.loads(os.environ.pop("SKEP_VARIABLES", "{}")))
    exec(compile(code, "benchmark", "exec"), {"__name__": "benchmark"})  # noqa: S102  # in a child of its own
    kinds = Benchmark.__subclasses__()
    if not kinds:
        sys.exit("the code has no subclass of skep.benchmark.Benchmark")
    run(kinds[-1]())
