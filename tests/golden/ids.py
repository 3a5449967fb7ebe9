"""The ids of all tests: each that was recorded is still there, or `docs/project/tests.tsv` says what became of it.

The table has the columns old, new, divided by tabs; empty lines and lines that begin with `#` are comments.

- `tests/a.py::test_x<TAB>tests/b.py::test_y`: the test has another id.
- `tests/a.py::*<TAB>tests/b.py::*`: every test whose id begins so; the rest of the id stays.
- `tests/a.py::test_x<TAB>removed: why`: the test does not exist any more.

The row with the longest beginning decides. A test that is new needs no row.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "tests.txt"
TABLE = ROOT / "docs" / "project" / "tests.tsv"
REMOVED = "removed: "
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class IdsError(ValueError):
    """The record or the table is wrong; the text says where."""


class Row(NamedTuple):
    old: str
    new: str

    @property
    def beginning(self) -> str:
        return self.old.removesuffix("*")

    def fits(self, id: str) -> bool:
        return id.startswith(self.beginning) if self.old.endswith("*") else id == self.old

    def maps(self, id: str) -> str:
        return self.new.removesuffix("*") + id[len(self.beginning) :] if self.new.endswith("*") else self.new


def plain(id: str) -> str:
    """Without addresses in memory and the folder of the checkout, which parameters may show."""
    return _ADDRESS.sub("0x", id.replace(str(ROOT), "ROOT"))


def text_of(ids: Iterable[str]) -> str:
    """The first line shows when another is missing: new tests are welcome, so nothing else would."""
    lines = sorted(set(map(plain, ids)))
    body = "".join(f"{one}\n" for one in lines)
    return f"# {len(lines)} ids, sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def read_record(path: Path = RECORD) -> list[str]:
    text = path.read_text(encoding="utf-8")
    ids = text.splitlines()[1:]
    if text != text_of(ids):
        raise IdsError(f"{path.name} was changed by hand: its first line does not fit the others")
    return ids


def read_table(path: Path = TABLE) -> list[Row]:
    if not path.exists():
        return []
    found = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = text.split("\t")
        if not text.strip() or text.startswith("#") or cells[:2] == ["old", "new"]:
            continue
        if len(cells) < 2 or not cells[1] or (cells[1].endswith("*") and not cells[0].endswith("*")):
            raise IdsError(f"{path.name}:{number}: a row needs an old id, and a new id or a reason: {text!r}")
        if not cells[1].startswith((REMOVED, "tests/")) or cells[1].strip() == REMOVED.strip():
            raise IdsError(f"{path.name}:{number}: {cells[1]!r} is neither an id of a test nor 'removed: WHY'")
        found.append(Row(cells[0], cells[1]))
    return found


def missing(recorded: Iterable[str], table: Iterable[Row], now: Collection[str]) -> Iterator[str]:
    """A line for each test that is lost, and for each row that is about nothing."""
    rows = sorted(table, key=lambda row: (len(row.beginning), not row.old.endswith("*")), reverse=True)
    used: set[Row] = set()
    for id in recorded:
        row = next((row for row in rows if row.fits(id)), None)
        if row is not None:
            used.add(row)
        if id in now:
            continue
        if row is None:
            yield f"{id}: is lost, and no row of {TABLE.name} says why"
        elif not row.new.startswith(REMOVED) and row.maps(id) not in now:
            yield f"{id}: should be {row.maps(id)}, which does not exist"
    for row in rows:
        if row not in used:
            yield f"{row.old}: {TABLE.name} has a row for it, and no recorded test begins so"


def collect() -> list[str]:
    """All ids, from pytest in another process."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise IdsError(f"pytest could not collect:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [one for one in done.stdout.splitlines() if one.startswith("tests/") and "::" in one]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test-ids", description="The ids of all tests.")
    parser.add_argument("what", choices=("record", "compare"))
    if parser.parse_args().what == "record":
        RECORD.write_text(text_of(collect()), encoding="utf-8")
        return 0
    try:
        found = list(missing(read_record(), read_table(), set(map(plain, collect()))))
    except (IdsError, OSError) as error:
        found = [str(error)]
    sys.stdout.write("".join(f"{one}\n" for one in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
