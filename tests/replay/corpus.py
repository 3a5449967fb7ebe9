"""Makes the corpus of the replay: 3,000 requests, the same for the same seed.

`python -m tests.replay.corpus` writes it to requests.jsonl.

A request is one line of JSON. `{name}` stands for the upstream, or for what an earlier answer was asked to `keep`.
`until` repeats a request until its answer is so; only the last answer counts. That is how the replay waits for work in
the background instead of leaving it out of the comparison.
"""

import json
import random
from pathlib import Path
from typing import Any

from tests.replay import scenes

FILE = Path(__file__).parent / "requests.jsonl"
COUNT = 3_000
SEED = 20_240_601


class Corpus:
    """Collects requests; `known` are names of kept values by what they are, such as `source` -> `{source:1}`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lines: list[dict[str, Any]] = []
        self.known: dict[str, list[str]] = {}
        self._count = 0

    def number(self) -> int:
        self._count += 1
        return self._count

    def ask(self, method: str, path: str, role: str = "admin", **more: Any) -> None:
        given = {name: value for name, value in more.items() if value not in (None, "")}
        self.lines.append({"role": role, "method": method, "path": path, **given})

    def api(self, method: str, path: str, role: str = "admin", **more: Any) -> None:
        self.ask(method, f"/api/v1{path}", role, **more)

    def keeps(self, kind: str, path: str) -> tuple[str, dict[str, str]]:
        """A name for a part of the next answer, and what the request says of it."""
        name = f"{kind}:{self.number()}"
        return f"{{{name}}}", {name: path}

    def some(self, kind: str) -> str:
        """One that is there, or one that never was."""
        known = self.known.get(kind, [])
        return self.dice.choice(known) if known and self.dice.random() < 0.85 else f"no-such-{kind}"

    def role(self) -> str:
        return self.dice.choices(("admin", "write", "private", "read", "none", "wrong"), (40, 20, 12, 15, 10, 3))[0]


def generated(count: int = COUNT, seed: int = SEED) -> list[dict[str, Any]]:
    """Sources, nodes and what else everything is about come first; then scenes in an order that the seed decides."""
    corpus = Corpus(seed)
    scenes.prepare(corpus)
    while len(corpus.lines) < count:
        corpus.dice.choices(scenes.SCENES, scenes.WEIGHTS)[0](corpus)
    return corpus.lines[:count]


def text(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)


def load(limit: int | None = None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()[:limit]]


if __name__ == "__main__":
    FILE.write_text(text(generated()))
