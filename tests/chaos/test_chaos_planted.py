"""Each planted bug still fits the tree: the text that it replaces is there, once."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.chaos.planted import BUGS, Bug, plant

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_plant_of_each_bug_changes_files_that_python_can_read(bug: Bug, tmp_path: Path) -> None:
    for edit in bug.edits:
        copy = tmp_path / "src" / "skep" / edit.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / "src" / "skep" / edit.path, copy)
    plant(bug, tmp_path)
    for edit in bug.edits:
        changed = (tmp_path / "src" / "skep" / edit.path).read_text()
        assert changed != (_ROOT / "src" / "skep" / edit.path).read_text()
        ast.parse(changed)
