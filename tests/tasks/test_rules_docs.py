"""The example in the documentation is a rule."""

import re
import tomllib
from pathlib import Path

import msgspec

from skep.rules.api import RuleSpec
from skep.rules.matching import check

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_examples() -> None:
    text = PAGE.read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        check(msgspec.convert(tomllib.loads(example), RuleSpec))
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert rows == {field.name for field in msgspec.structs.fields(RuleSpec)}
