"""The examples of the documentation are benchmarks, and its table has every field."""

import re
import tomllib
from pathlib import Path

import msgspec

from skep.benchmarks.api import BenchmarkSpec
from skep.benchmarks.cli import read
from skep.benchmarks.service import check

ROOT = Path(__file__).parents[2]


def test_examples_and_fields() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        check(msgspec.convert(tomllib.loads(example), BenchmarkSpec))
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(field.name for field in msgspec.structs.fields(BenchmarkSpec))


def test_files_of_examples() -> None:
    folder = ROOT / "examples" / "benchmark"
    for file in folder.glob("*.toml"):
        code = file.with_suffix(".py")
        for spec in read(str(file), str(code) if code.exists() else None):
            check(spec)
