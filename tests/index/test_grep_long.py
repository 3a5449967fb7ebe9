"""A real repository searched like `git grep` and ripgrep search it, line for line, with queries made of its own text.

A slice of some seconds belongs to every run; `make long LONG=600 SEED=5` goes on longer.
"""

import logging
import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest
import re2

import skep
from skep.storage.code_index.model import Term
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from tests.index.conftest import fence, make_delta, places
from tests.index.test_ripgrep_equality import Ripgrep, assert_same, for_ripgrep, patterns

LONG, SEED = float(os.environ.get("LONG", "4")), int(os.environ.get("SEED", "1"))
log = logging.getLogger(__name__)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Some of Skep's own code, in git."""
    folder = tmp_path / "repository"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(skep.__file__).parent / "storage" / "code_index", folder, ignore=ignored)
    for args in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", folder, *args], check=True)
    return folder


@pytest.fixture
async def indexed(repository: Path, searcher: TrigramSearcher, tmp_path: Path) -> AsyncIterator[TrigramSearcher]:
    found = [path for path in sorted(repository.rglob("*")) if path.is_file() and ".git" not in path.parts]
    files = {str(path.relative_to(repository)).encode(): path.read_bytes() for path in found}
    assert await searcher.adopt(make_delta(tmp_path / "built", files, commit="c1"), fence())
    yield searcher


def git_grep(folder: Path, text: str, case: bool) -> list[tuple[str, int, int]]:
    command = ["git", "-C", str(folder), "grep", "-a", "-n", "-z", "--column", "-F", *([] if case else ["-i"])]
    ran = subprocess.run([*command, "-e", text], capture_output=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    lines = [line.split(b"\0", 3) for line in ran.stdout.split(b"\n") if line]
    return [(path.decode(), int(number), int(column)) for path, number, column, _ in lines]


def literal(rng: random.Random, lines: list[str]) -> str:
    line = rng.choice(lines)
    start = rng.randrange(len(line))
    return line[start : start + rng.choice((2, 3, 4, 6, 9, 15, 30))]


def pattern(rng: random.Random, lines: list[str]) -> str:
    """Of the text itself, with some of it made vague; or any."""
    if rng.random() < 0.3:
        return patterns(rng.randrange(1 << 30), 1)[0]
    text = literal(rng, lines)
    vague = {"e": "[a-f]", "t": "\\w", " ": "[ \\t]+", "_": ".*", "s": "s?", "r": "(?:r|n)"}
    plain = {char: "\\" + char for char in "\\.+*?()[]{}^$|"}
    return "".join(vague[char] if char in vague and rng.random() < 0.3 else plain.get(char, char) for char in text)


async def test_like_git_grep_and_ripgrep(repository: Path, indexed: TrigramSearcher, ripgrep: Ripgrep) -> None:
    rng = random.Random(SEED)
    texts = [path.read_text() for path in sorted(repository.rglob("*.py"))]
    lines = [line for text in texts for line in text.splitlines() if line and line.isascii()]
    until, asked = monotonic() + LONG, 0
    while monotonic() < until or asked < 10:
        case, asked = rng.random() < 0.5, asked + 2
        text, regex = literal(rng, lines), pattern(rng, lines)
        found = await places(indexed, Term("content", text, False, case))
        assert_same(found, git_grep(repository, text, case), (SEED, text, case))
        try:
            re2.compile(regex)
        except re2.error:
            continue
        expected = ripgrep(repository, "--no-ignore", "-g", "!.git", "-s" if case else "-i", "-e", for_ripgrep(regex))
        assert_same(await places(indexed, Term("content", regex, True, case)), expected, (SEED, regex, case))
    log.info("%d queries agree", asked)
