"""Files with results, as drafts. Pure: what a file is, is seen from what is in it."""

import json
import math
import re
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
    """The drafts in a file: JSON lines, or what pytest-benchmark, asv, hyperfine, Google Benchmark or Go wrote."""
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
    own = name.endswith(".jsonl")
    data, text = (None, "") if own else (_parsed(body), body.decode(errors="replace"))
    known = data.keys() if isinstance(data, dict) else ()
    reader = next((one for keys, one in _READERS.items() if set(keys) <= set(known)), None)
    if reader is None and not _GO_LINE.search(text):
        yield from _lines(name, body)
        return
    try:
        yield from reader(data) if reader else _go(text)
    except (msgspec.ValidationError, *_WRONG) as error:
        looks = reader.__name__[1:] if reader else "go"
        raise BadInput(f"{name} looks like a file of {looks}, but is none: {error!r}"[:500]) from None


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


def _google_benchmark(data: dict[str, Any]) -> Iterator[Draft]:
    """The repetitions of a benchmark are one result; what the library makes of them is left to us."""
    runs: dict[tuple[str, str], list[float]] = {}
    for one in data["benchmarks"]:
        name = one.get("run_name") or one["name"]
        if one.get("error_occurred"):
            reason = {"reason": str(one.get("error_message", ""))[:1000]}
            yield Draft("time", kind="failure", group=name, tags=reason)
        elif one.get("run_type", "iteration") == "iteration":
            runs.setdefault((name, one.get("time_unit", "ns")), []).append(one["real_time"])
    for (name, unit), values in runs.items():
        yield _draft("time", None, unit, name, values, {})


#: how Go says what a line measures
_GO = {"ns/op": ("time", "ns"), "B/op": ("memory", "B"), "allocs/op": ("allocations", ""), "MB/s": ("speed", "MB/s")}
_GO_LINE = re.compile(r"^(Benchmark\S*?)(?:-(\d+))?\s+\d+\s+(\d.*)$", re.MULTILINE)


def _go(text: str) -> Iterator[Draft]:
    """`go test -bench`: a line for each time a benchmark ran."""
    runs: dict[tuple[str, str, str], list[float]] = {}
    for name, cores, rest in _GO_LINE.findall(text):
        words = rest.split()
        for value, unit in zip(words[::2], words[1::2], strict=False):
            runs.setdefault((name, cores, unit), []).append(float(value))
    for (name, cores, unit), values in runs.items():
        metric, short = _GO.get(unit, (unit, unit))
        yield _draft(metric, None, short, name, values, {"cores": cores} if cores else {})


_READERS: dict[tuple[str, ...], Callable[[Any], Iterator[Draft]]] = {
    ("benchmarks", "machine_info"): _pytest_benchmark,
    ("benchmarks", "context"): _google_benchmark,
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
