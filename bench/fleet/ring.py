"""A million sources on a hundred workers: how long an assignment takes, and what a join or a leave moves.

python -m bench.fleet.ring [--sources 1000000] [--workers 100]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from skep.fleet.ring import NOBODY, Holders, Node, Numbers, Ring, Weights

ROUNDS = 3
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=100)
    args = parser.parse_args()
    chance = np.random.default_rng(1)
    numbers = chance.integers(0, 1 << 63, args.sources, dtype=np.uint64) * np.uint64(2)
    print("| weights | what | seconds | moved beside the ideal | max load / share |\n|---|---|---|---|---|")
    for name, weights in (("all alike", np.ones(args.sources)), ("pareto 2.5", chance.pareto(2.5, args.sources) + 0.1)):
        nodes = [Node(f"wrk_{n}", 1.0 + n % 3) for n in range(args.workers)]
        nothing = np.full(args.sources, NOBODY, np.int32)
        ring, more, fewer = Ring(nodes), Ring([*nodes, Node("wrk_new", 2.0)]), Ring(nodes[:-1])
        seconds, held = timed(partial(ring.assign, numbers, weights, nothing))
        row(name, "first", seconds, "", ring, held, weights)
        seconds, after = timed(partial(more.assign, numbers, weights, held))
        ideal = more.shares[-1] * weights.sum()
        row(name, "join", seconds, f"{weights[after != held].sum() / ideal:.2f}", more, after, weights)
        orphaned = np.where(held == args.workers - 1, NOBODY, held).astype(np.int32)
        seconds, after = timed(partial(fewer.assign, numbers, weights, orphaned))
        ideal = weights[orphaned == NOBODY].sum()
        row(name, "leave", seconds, f"{weights[after != orphaned].sum() / ideal:.2f}", fewer, after, weights)
        replicated(name, numbers, weights, nodes, held)


def replicated(name: str, numbers: Numbers, weights: Weights, nodes: list[Node], primary: Holders) -> None:
    """A second copy of everything; then one joins, and one leaves whose primaries go to where their replicas are."""
    ring, more, fewer = Ring(nodes), Ring([*nodes, Node("wrk_new", 2.0)]), Ring(nodes[:-1])
    nothing, last = np.full(len(numbers), NOBODY, np.int32), len(nodes) - 1
    seconds, held = timed(lambda: ring.replicas(numbers, weights, primary, [nothing])[0])
    row(name, "second copy, first", seconds, "", ring, held, weights)
    joined = more.assign(numbers, weights, primary)
    seconds, after = timed(lambda: more.replicas(numbers, weights, joined, [held])[0])
    moved = f"{weights[after != held].sum() / (more.shares[-1] * weights.sum()):.2f}"
    row(name, "second copy, join", seconds, moved, more, after, weights)
    heirs = np.where(primary == last, held, primary).astype(np.int32)
    row(name, "primaries after a leave", 0.0, "1.00", fewer, heirs, weights)
    lost = ((primary == last) | (held == last)) & (held != NOBODY)
    kept = np.where(lost, NOBODY, held).astype(np.int32)
    seconds, after = timed(lambda: fewer.replicas(numbers, weights, heirs, [kept])[0])
    moved = f"{weights[after != kept].sum() / weights[lost].sum():.2f}"
    row(name, "second copy, leave", seconds, moved, fewer, after, weights)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        found = work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), found


def row(name: str, what: str, seconds: float, moved: str, ring: Ring, held: Holders, weights: Weights) -> None:
    loads = np.bincount(held, weights, len(ring.nodes)) / (ring.shares * weights.sum())
    print(f"| {name} | {what} | {seconds:.2f} | {moved} | {loads.max():.3f} |")


if __name__ == "__main__":
    main()
