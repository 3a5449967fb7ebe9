"""Files with results, as drafts. Pure: what a file is, is seen from what is in it."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import msgspec

from skep.errors import BadInput, TooLarge
from skep.model.result import KINDS, Draft
from skep.results.drafts import MOST_VALUES, checked

#: bytes of one file
LARGEST = 16_000_000
MOST_DRAFTS = 100_000
_WRONG = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


def read(name: str, body: bytes) -> list[Draft]:
    """The drafts in a file: JSON lines, or the JSON of pytest-benchmark, asv or hyperfine."""
    if len(body) > LARGEST:
        raise TooLarge(
            f"{name} has more than {LARGEST:,} bytes",
            hint="record fewer results, or only their medians instead of all values",
        )
    drafts: list[Draft] = []
    for draft in _found(name, body):
        drafts.append(draft)
        if len(drafts) > MOST_DRAFTS:
            raise TooLarge(f"{name} has more than {MOST_DRAFTS:,} results")
    return drafts


def _found(name: str, body: bytes) -> Iterator[Draft]:
    data = None if name.endswith(".jsonl") else _parsed(body)
    known = data.keys() if isinstance(data, dict) else ()
    reader = next((one for keys, one in _READERS.items() if set(keys) <= set(known)), None)
    if reader is None:
        yield from _lines(name, body)
        return
    try:
        yield from reader(data)
    except (msgspec.ValidationError, *_WRONG) as error:
        raise BadInput(f"{name} looks like a file of {reader.__name__[1:]}, but is none: {error!r}"[:500]) from None


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except _WRONG:
        return None


def _lines(name: str, body: bytes) -> Iterator[Draft]:
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            # not msgspec's decoder: it would say of NaN only that it is no JSON
            draft = msgspec.convert(json.loads(line), Draft)
            yield checked(draft, (draft.kind,))
        except (msgspec.ValidationError, BadInput, *_WRONG) as error:
            raise BadInput(
                f"{name}, line {number}: {error}"[:500],
                hint='each line is one result: {"metric": "time", "value": 1.25, "unit": "s"}',
            ) from None


def _pytest_benchmark(data: dict[str, Any]) -> Iterator[Draft]:
    for one in data["benchmarks"]:
        stats = one["stats"]
        tags = _tags(one.get("params"))
        yield _draft("time", stats["median"], "s", one.get("fullname") or one["name"], stats.get("data") or (), tags)


def _hyperfine(data: dict[str, Any]) -> Iterator[Draft]:
    for one in data["results"]:
        group, tags = one["command"], _tags(one.get("parameters"))
        yield _draft("time", one.get("median", one["mean"]), "s", group, one.get("times") or (), tags)
        if memory := one.get("memory_usage_byte"):
            yield _draft("memory", None, "B", group, memory, tags)


#: how asv names what a function measures
_ASV = {"time": ("time", "s"), "timeraw": ("time", "s"), "mem": ("memory", "B"), "peakmem": ("peak memory", "B")}


def _asv(data: dict[str, Any]) -> Iterator[Draft]:
    """One result for each combination of parameters; null is one that failed, NaN one that was left out."""
    for name, found in data["results"].items():
        row = dict(zip(data["result_columns"], found, strict=False)) if isinstance(found, list) else {"result": found}
        metric, unit = _ASV.get(name.rpartition(".")[2].partition("_")[0], ("value", ""))
        combinations = [*product(*(row.get("params") or []))]
        values = row["result"] if isinstance(row["result"], list) else [row["result"]] * len(combinations)
        samples = row.get("samples") or [None] * len(values)
        for combination, value, repeated in zip(combinations, values, samples, strict=True):
            tags = {f"param{n}": str(each) for n, each in enumerate(combination, 1)}
            group = f"{name}({', '.join(map(str, combination))})" if combination else name
            if value is None:
                yield Draft(metric, kind="failure", group=group, tags={**tags, "reason": "asv says that it failed"})
            elif not math.isnan(value):
                yield _draft(metric, value, unit, group, repeated or (), tags)


_READERS: dict[tuple[str, ...], Callable[[Any], Iterator[Draft]]] = {
    ("benchmarks", "machine_info"): _pytest_benchmark,
    ("results", "result_columns"): _asv,
    ("results",): _hyperfine,
}


def _draft(metric: str, value: float | None, unit: str, group: str, values: Any, tags: Mapping[str, str]) -> Draft:
    """Of many repetitions every n-th is kept: enough for a noise estimate, and for a picture."""
    step = -(-len(values) // MOST_VALUES) or 1
    given = {"metric": metric, "value": value, "unit": unit, "values": values[::step], "group": group, "tags": tags}
    return checked(msgspec.convert(given, Draft), KINDS)


def _tags(given: Any) -> dict[str, str]:
    return {str(name): str(value)[:1000] for name, value in (given or {}).items()}
