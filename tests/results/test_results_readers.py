"""Files that others write, as results."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput, SkepError, TooLarge
from skep.results.api import Draft
from skep.results.fields import LARGEST, read
from skep.results.worker import found

PYTEST = {
    "machine_info": {"node": "x"},
    "benchmarks": [
        {
            "name": "test_parse[10]",
            "fullname": "tests/test_a.py::test_parse[10]",
            "params": {"size": 10},
            "stats": {"median": 0.25, "mean": 0.3, "data": [0.2, 0.25, 0.45]},
        },
        {"name": "test_bare", "params": None, "stats": {"median": 1.5}},
    ],
}
HYPERFINE = {
    "results": [
        {"command": "sleep 0.1", "mean": 0.11, "median": 0.1, "times": [0.1, 0.1, 0.13], "parameters": {"n": "1"}},
        {"command": "ls", "mean": 0.01, "times": None, "memory_usage_byte": [1000, 3000]},
    ]
}
ASV = {
    "commit_hash": "c" * 40,
    "result_columns": ["result", "params", "version", "started_at", "duration", "samples"],
    "results": {
        "suite.Parse.time_parse": [
            [0.5, None, float("nan")], [["1", "2", "3"]], "v", 1, 2, [[0.4, 0.5, 0.6], None, None],
        ],
        "suite.peakmem_load": [[2048], [], "v"],
        "suite.track_ratio": [[0.9], []],
        "suite.time_broken": None,
    },
    "version": 2,
}  # fmt: skip


def of(data: Any, name: str = "bench.json") -> list[Draft]:
    return read(name, json.dumps(data).encode())


def test_pytest_benchmark() -> None:
    assert of(PYTEST) == [
        Draft("time", 0.25, "s", (0.2, 0.25, 0.45), "tests/test_a.py::test_parse[10]", tags={"size": "10"}),
        Draft("time", 1.5, "s", group="test_bare"),
    ]


def test_hyperfine() -> None:
    assert of(HYPERFINE) == [
        Draft("time", 0.1, "s", (0.1, 0.1, 0.13), "sleep 0.1", tags={"n": "1"}),
        Draft("time", 0.01, "s", group="ls"),
        Draft("memory", 2000.0, "B", (1000.0, 3000.0), "ls"),
    ]


def test_asv() -> None:
    """What was left out is nothing; what failed is said."""
    failed = {"reason": "asv says that it failed"}
    assert of(ASV) == [
        Draft("time", 0.5, "s", (0.4, 0.5, 0.6), "suite.Parse.time_parse(1)", tags={"param1": "1"}),
        Draft("time", group="suite.Parse.time_parse(2)", kind="failure", tags={"param1": "2", **failed}),
        Draft("peak memory", 2048.0, "B", group="suite.peakmem_load"),
        Draft("value", 0.9, group="suite.track_ratio"),
        Draft("time", group="suite.time_broken", kind="failure", tags=failed),
    ]


def test_google_benchmark() -> None:
    runs = [{"name": "BM_a/8", "run_type": "iteration", "real_time": n, "time_unit": "us"} for n in (3, 1, 2)]
    mean = {"name": "BM_a/8_mean", "run_type": "aggregate", "real_time": 2, "time_unit": "us"}
    error = {"name": "BM_b", "error_occurred": True, "error_message": "no input"}
    assert of({"context": {}, "benchmarks": [*runs, mean, error]}) == [
        Draft("time", group="BM_b", kind="failure", tags={"reason": "no input"}),
        Draft("time", 2.0, "us", (3.0, 1.0, 2.0), "BM_a/8"),
    ]


def test_go() -> None:
    text = b"""goos: linux
BenchmarkParse/big-8   \t  1000\t  1200 ns/op\t   64 B/op\t  2 allocs/op
BenchmarkParse/big-8   \t  1000\t  1300.5 ns/op\t   64 B/op\t  2 allocs/op
BenchmarkAlone 10 7 hops
PASS
"""
    eight = {"cores": "8"}
    assert read("bench.txt", text) == [
        Draft("time", 1250.25, "ns", (1200.0, 1300.5), "BenchmarkParse/big", tags=eight),
        Draft("memory", 64.0, "B", (64.0, 64.0), "BenchmarkParse/big", tags=eight),
        Draft("allocations", 2.0, "", (2.0, 2.0), "BenchmarkParse/big", tags=eight),
        Draft("hops", 7.0, "hops", (7.0,), "BenchmarkAlone"),
    ]
    with pytest.raises(BadInput, match="file of go"):
        read("bench.txt", b"BenchmarkA 10 7 ns/op fast MB/s\n")


def test_json_lines() -> None:
    body = b'{"metric": "time", "values": [1, 2, 4], "unit": "s"}\n\n{"kind": "failure"}\n'
    wanted = [Draft("time", 2.0, "s", (1.0, 2.0, 4.0)), Draft(kind="failure", value=0.0)]
    assert read("results.jsonl", body) == read("-", body) == wanted
    assert read("one.json", b'{"metric": "time", "value": 1}') == [Draft("time", 1.0)]


def test_repetitions_without_end_are_thinned() -> None:
    many = {**PYTEST, "benchmarks": [{"name": "a", "stats": {"median": 5.0, "data": [5.0] * 25_000}}]}
    (draft,) = of(many)
    assert 5_000 < len(draft.values) <= 10_000


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("results.jsonl", b'{"kind": "failure"}\n{"metric": "a", "value": NaN}', "line 2: a value of 'a' is nan"),
        ("results.jsonl", b'{"metric": "a", "value": 1e999}', "line 1: a value of 'a' is inf"),
        ("results.jsonl", b'{"metric": "a", "valu": 1}', "unknown field `valu`"),
        ("results.jsonl", b'{"metric": "a", "value": "1"}', "Expected `float"),
        ("results.jsonl", b"[" * 100_000, "recursion"),
        ("results.jsonl", b"\xff\xfe", "line 1"),
        ("bench.json", b'{"benchmarks": [{}], "machine_info": {}}', "looks like a file of pytest_benchmark"),
        ("bench.json", b'{"results": [{"command": "x", "mean": NaN}]}', "is nan"),
        ("bench.json", b'{"results": {}, "result_columns": 5}', None),
        ("bench.json", b'{"results": {"a": [[1, 2], []]}, "result_columns": ["result", "params"]}', "asv"),
        ("bench.json", b"nothing", "line 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(name: str, body: bytes, says: str | None) -> None:
    if says is None:
        assert read(name, body) == []
        return
    with pytest.raises(BadInput, match=says):
        read(name, body)


def test_a_hundred_megabytes_are_refused_by_their_size() -> None:
    with pytest.raises(TooLarge, match="has more than 16,000,000 bytes"):
        read("results.jsonl", b" " * (LARGEST + 1))
    with pytest.raises(TooLarge, match="has more than 100,000 results"):
        read("results.jsonl", b'{"metric":"a","value":1}\n' * 100_001)


KEYS = st.sampled_from(
    [
        "results",
        "benchmarks",
        "machine_info",
        "context",
        "real_time",
        "result_columns",
        "stats",
        "median",
        "data",
        "command",
        "times",
        "params",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)


@given(JSON)
def test_whatever_comes_only_our_own_errors_leave(data: Any) -> None:
    with contextlib.suppress(SkepError):
        of(data)


def test_files_of_a_task(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    assert found(work, ()) == []
    (work / "results.jsonl").write_text('{"metric": "a", "value": 1}\n')
    (work / "out" / "x.json").write_text(json.dumps(HYPERFINE))
    (work / "link.json").symlink_to("out/x.json")
    assert [draft.metric for draft in found(work, ("**/*.json", "results.jsonl"))] == ["a", "time", "time", "memory"]
    with pytest.raises(BadInput, match=r"left no file 'bench\*\.json'"):
        found(work, ("bench*.json",))


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret.jsonl").write_text('{"metric": "secret", "value": 1}\n')
    (work / "results.jsonl").symlink_to("../secret.jsonl")
    (work / "up").symlink_to("..")
    assert found(work, ()) == []
    with pytest.raises(BadInput, match="left no file"):
        found(work, ("up/*.jsonl",))
