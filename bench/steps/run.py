"""How well steps are found: series whose steps are known, beside Apache Otava on the same series.

    python -m bench.steps.run [--otava PYTHON] [--series 100]

PYTHON is an interpreter that has `apache-otava` (requirements: bench/steps/requirements.txt); without it only ours.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from skep.benchmarks.step_detection import find_steps

LENGTH = 100
SIZES, NOISES = (0.03, 0.05, 0.10), (0.01, 0.03, 0.05)
#: a step found so near to where it is counts as found
NEAR = 5
Series = tuple[list[float], int | None]


def make(size: float, noise: float, count: int, seed: int, spiky: bool) -> list[Series]:
    """One step up or down somewhere in the middle; none with size 0. Spiky: one value in 20 is 5 to 30 % slower."""
    dice = np.random.default_rng(seed)
    made: list[Series] = []
    for _ in range(count):
        at = int(dice.integers(LENGTH // 5, LENGTH * 4 // 5))
        values = 100.0 * (1.0 + noise * dice.standard_normal(LENGTH))
        if size:
            values[at:] *= 1.0 + size if dice.random() < 0.5 else 1.0 / (1.0 + size)
        if spiky:
            values *= 1.0 + (dice.random(LENGTH) < 0.05) * dice.uniform(0.05, 0.30, LENGTH)
        made.append(([float(value) for value in values], at if size else None))
    return made


def count(found: Sequence[Sequence[int]], series: Sequence[Series]) -> tuple[int, int, int]:
    """Steps found, steps there are, and found where there is none."""
    hits = wrong = 0
    for places, (_, at) in zip(found, series, strict=True):
        near = [place for place in places if at is not None and abs(place - at) <= NEAR]
        hits += bool(near)
        wrong += len(places) - bool(near)
    return hits, sum(at is not None for _, at in series), wrong


def ours(series: Sequence[list[float]]) -> list[list[int]]:
    return [[step.at for step in find_steps(values)] for values in series]


def otava(python: str) -> Callable[[Sequence[list[float]]], list[list[int]]]:
    def find(series: Sequence[list[float]]) -> list[list[int]]:
        script = str(Path(__file__).with_name("otava_steps.py"))
        done = subprocess.run([python, script], input=json.dumps(series), text=True, capture_output=True, check=True)
        return [[int(place) for place in places] for places in json.loads(done.stdout)]

    return find


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--otava", metavar="PYTHON", default="")
    parser.add_argument("--series", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    finders = {"skep": ours} | ({"otava": otava(args.otava)} if args.otava else {})
    print("| noise | step | " + " | ".join(f"{name} precision, recall" for name in finders) + " |")
    print("|---|---|" + "---|" * len(finders))
    totals = {name: np.zeros(3, dtype=int) for name in finders}
    seconds = dict.fromkeys(finders, 0.0)
    for spiky in (False, True):
        for noise in NOISES:
            for size in (0.0, *SIZES):
                series = make(size, noise, args.series, args.seed + round(1000 * (noise + 10 * size)) + spiky, spiky)
                cells: list[str] = []
                for name, find in finders.items():
                    began = time.perf_counter()
                    got = count(find([values for values, _ in series]), series)
                    seconds[name] += time.perf_counter() - began
                    totals[name] += got
                    cells.append(_cell(*got, len(series)))
                kind = f"{noise:.0%}{' and spikes' if spiky else ''}"
                print(f"| {kind} | {f'{size:.0%}' if size else 'none'} | " + " | ".join(cells) + " |", flush=True)
    for name, (hits, there, wrong) in totals.items():
        print(f"{name}: precision {hits / max(1, hits + wrong):.3f}, recall {hits / there:.3f}, {seconds[name]:.1f} s")


def _cell(hits: int, there: int, wrong: int, series: int) -> str:
    if not there:
        return f"{wrong} false in {series} series"
    return f"{hits / max(1, hits + wrong):.2f}, {hits / there:.2f}"


if __name__ == "__main__":
    main()
