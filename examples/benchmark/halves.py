"""A benchmark that decides by itself: the commits of a range one after the other, until one was twice as slow.

skep benchmark add examples/benchmark/halves.toml --code examples/benchmark/halves.py
"""

from typing import Any

from skep.benchmark import WAIT, Benchmark


class Halves(Benchmark):
    def generate_context(self, state: dict[str, Any]) -> Any:
        times = [result["value"] for result in self.results("metric=time")]
        if times and times[0] > 2 * min(times):
            return None
        commits = self.history("main")
        done = state.get("done", 0)
        if done == len(commits):
            return WAIT
        state["done"] = done + 1
        commit = commits[done]
        return {
            "key": commit["id"],
            "name": f"commit {commit['id'][:12]}",
            "properties": {"skep.commit": commit["id"], "skep.made_at": str(commit["made_at"])},
            "tasks": [{"argv": ["sh", "-c", self.measure, "sh", commit["subject"]]}],
        }

    def on_resubmit(self, state: dict[str, Any]) -> None:
        state["again"] = state.get("again", 0) + 1

    #: here the time stands in the subject of the commit; a real one would check it out
    measure = 'echo "{\\"metric\\": \\"time\\", \\"value\\": ${1##* }, \\"unit\\": \\"s\\"}" > results.jsonl'
