"""The fields of a result, and filters over them as SQL. Pure."""

import base64
import binascii
import csv
import io
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import msgspec

from skep.base.errors import BadInput, TooLarge
from skep.results.api import KINDS, Draft
from skep.storage.database import Value

# What may be recorded. Pure.

MOST_VALUES = 10_000
_LONGEST = {"metric": 200, "unit": 40, "group": 500, "kind": 40}
_MOST_TAGS, _LONGEST_TAG = 32, 1_000


def checked(draft: Draft, kinds: Collection[str]) -> Draft:
    """With its value; BadInput says what is wrong with it."""
    if draft.kind not in kinds:
        raise BadInput(
            f"{draft.kind[:80]!r} is no kind of result; known are {', '.join(kinds)}",
            hint="the setting result_kinds names more",
        )
    failure = draft.kind == "failure"
    if not draft.metric and not failure:
        raise BadInput("a result without a metric", hint='such as {"metric": "time", "value": 1.25, "unit": "s"}')
    for name, most in _LONGEST.items():
        _text(name, getattr(draft, name), most)
    if len(draft.tags) > _MOST_TAGS:
        raise BadInput(f"{draft.metric!r} has {len(draft.tags)} tags; at most {_MOST_TAGS} are allowed")
    for name, text in draft.tags.items():
        _text("a tag's name", name, _LONGEST["metric"])
        _text(f"the tag {name}", text, _LONGEST_TAG)
    return msgspec.structs.replace(draft, value=_drafts_value(draft, failure))


def _drafts_value(draft: Draft, failure: bool) -> float:
    if len(draft.values) > MOST_VALUES:
        raise BadInput(f"{draft.metric!r} has {len(draft.values):,} values; at most {MOST_VALUES:,} are allowed")
    for number in (*draft.values, draft.value or 0.0):
        if not math.isfinite(number):
            raise BadInput(f"a value of {draft.metric!r} is {number}", hint="only finite numbers are recorded")
    if draft.value is not None:
        return draft.value
    if not draft.values and not failure:
        raise BadInput(f"{draft.metric!r} has neither a value nor values")
    return median(draft.values) if draft.values else 0.0


def _text(name: str, text: str, most: int) -> None:
    if len(text) > most or not text.isprintable():
        raise BadInput(f"{name}: {text[:80]!r} has more than {most} characters, or some that nobody can read")


FROM = "FROM result JOIN series ON series.id = result.series"


def _same(value: Any) -> Any:
    return value


class Field(NamedTuple):
    sql: str
    #: what its values are to a filter
    kind: type = str
    decode: Callable[[Any], Any] = _same


FIELDS = {
    "id": Field("result.id"),
    "kind": Field("result.kind"),
    "metric": Field("series.metric"),
    "value": Field("result.value", float),
    "unit": Field("COALESCE(series.unit, '')"),
    "values": Field("result.samples", tuple, lambda text: msgspec.json.decode(text, type=tuple[float, ...])),
    "group": Field("series.group_name"),
    "tags": Field("result.tags", dict, msgspec.json.decode),
    "task": Field("result.task"),
    "attempt": Field("result.attempt", int),
    "number": Field("result.number", int),
    "context": Field("result.context"),
    "benchmark": Field("series.benchmark"),
    "source": Field("series.source"),
    "ref": Field("series.ref"),
    "commit": Field("result.commit_id"),
    "made_at": Field("result.made_at", float),
    "machine": Field("series.machine"),
    "at": Field("result.at", float),
}
_FILTER = re.compile(r"\s*(?P<field>tags\.[^=!~<>]+|\w+)\s*(?P<op>!=|!~|<=|>=|=|~|<|>)\s?(?P<value>.*)", re.DOTALL)
_MOST_FILTERS = 50
_LIKE = str.maketrans({"%": "!%", "_": "!_", "!": "!!", "*": "%", "?": "_"})
_EXAMPLE = "such as metric=time, group~parse*, value>=1.5 or ref=main|next"


def field(name: str) -> Field:
    """One that can be compared: not a list of values, not all tags."""
    found = FIELDS.get(name)
    if found is None or found.kind in (tuple, dict):
        known = [name for name, one in FIELDS.items() if one.kind not in (tuple, dict)]
        raise BadInput(f"results have no field {name[:80]!r}", hint=f"there are: {', '.join(known)}, tags.NAME")
    return found


def condition(where: Sequence[str]) -> tuple[str, dict[str, Value]]:
    """All of the filters, and their parameters."""
    if len(where) > _MOST_FILTERS:
        raise BadInput(f"{len(where)} filters; at most {_MOST_FILTERS} are allowed")
    params: dict[str, Value] = {}
    parts = [_one(text, params) for text in where]
    return " AND ".join(["1 = 1", *parts]), params


def _one(text: str, params: dict[str, Value]) -> str:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise BadInput(f"{text[:80]!r} is no filter", hint=_EXAMPLE)
    name, op, given = found["field"].strip(), found["op"], found["value"]
    tag = name.removeprefix("tags.") if name.startswith("tags.") else ""
    sql, kind, _ = Field("result_tag.value") if tag else field(name)
    pattern, several = op in ("~", "!~"), op in ("=", "!=")
    if pattern and kind is not str:
        raise BadInput(f"{name} is a number and has no pattern", hint="compare it with =, <, <=, > or >=")
    holders = []
    for part in given.split("|") if several else [given]:
        holders.append(f":w{len(params)}")
        params[f"w{len(params)}"] = part.lower().translate(_LIKE) if pattern else _value(name, part, kind)
    if pattern:
        holds = f"lower({sql}) LIKE {holders[0]} ESCAPE '!'"
    else:
        holds = f"{sql} IN ({', '.join(holders)})" if several else f"{sql} {op} {holders[0]}"
    if tag:
        params[f"w{len(params)}"] = tag
        holds = (
            "EXISTS (SELECT 1 FROM result_tag WHERE result_tag.result = result.id "  # noqa: S608
            f"AND result_tag.name = :w{len(params) - 1} AND {holds})"
        )
    return f"NOT {holds}" if op.startswith("!") else holds


def _value(name: str, text: str, kind: type) -> str | int | float:
    try:
        value: str | int | float = kind(text)
    except ValueError:
        raise BadInput(f"{text[:80]!r} is no number, and {name} is one") from None
    return value


class Order(NamedTuple):
    """By one field, then by id; a page begins after the last of the page before."""

    name: str
    down: bool
    sql: str

    @classmethod
    def of(cls, text: str) -> "Order":
        name = text.removeprefix("-")
        return cls(name, text != name, field(name).sql)

    @property
    def by(self) -> str:
        way = "DESC" if self.down else "ASC"
        return f"ORDER BY {self.sql} {way}, result.id {way}"

    def after(self, page: str) -> tuple[str, dict[str, Value]]:
        if not page:
            return "1 = 1", {}
        try:
            value, id = msgspec.json.decode(base64.urlsafe_b64decode(page), type=tuple[str | int | float, str])
            value = field(self.name).kind(value)
        except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, ValueError):
            raise BadInput(f"{page[:80]!r} is no page of results") from None
        return f"({self.sql}, result.id) {'<' if self.down else '>'} (:page_value, :page_id)", {
            "page_value": value,
            "page_id": id,
        }

    @staticmethod
    def token(value: Any, id: str) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode((value, id))).decode()


# Results as one file: JSON lines, or CSV.

FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv"}


async def lines(
    pieces: AsyncIterator[list[dict[str, Any]]], form: str, fields: Sequence[str] = ()
) -> AsyncIterator[bytes]:
    if form == "jsonl":
        async for piece in pieces:
            yield b"".join(msgspec.json.encode(row) + b"\n" for row in piece)
        return
    out = io.StringIO()
    table = csv.DictWriter(out, fields or list(FIELDS), lineterminator="\n")
    table.writeheader()
    async for piece in pieces:
        table.writerows({name: _cell(value) for name, value in row.items()} for row in piece)
        yield out.getvalue().encode()
        out.seek(0)
        out.truncate()


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | tuple) else value


# Files with results, as drafts. Pure: what a file is, is seen from what is in it.

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
