"""`scripts/golden record | compare | statements`."""

import argparse
import sys
from pathlib import Path

from tests.renames import TABLE, Rename, RenameError, read_table

from . import ids, store
from .recorders import explain
from .recording import SURFACES, measure, record


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/golden", description="Golden data of everything that others see.")
    below = parser.add_subparsers(dest="what", required=True)
    surfaces = argparse.ArgumentParser(add_help=False)
    surfaces.add_argument("--surface", action="append", choices=SURFACES, help="only this one; may be repeated")
    below.add_parser("record", parents=[surfaces], help="write tests/golden/data from the tree as it is")
    compare = below.add_parser("compare", parents=[surfaces], help="compare the tree with what is recorded")
    compare.add_argument("--renames", type=Path, default=TABLE, metavar="FILE", help="table of renames (docs/project)")
    below.add_parser("statements", help="measure again which statements are the hottest")
    args = parser.parse_args()
    if args.what == "statements":
        explain.write_statements(measure())
        return 0
    chosen = tuple(args.surface or SURFACES)
    if args.what == "record":
        store.write(record(chosen, renew=True))
        return 0
    try:
        return _compare(chosen, read_table(args.renames))
    except (RenameError, OSError) as error:
        _say(f"golden: {error}")
        return 2


def _compare(chosen: tuple[str, ...], table: list[Rename]) -> int:
    found = record(chosen, table)
    wrong = 0
    for surface in chosen:
        lines = store.difference(surface, found[surface], table)
        wrong += bool(lines)
        _say(f"{surface}: {'differs' if lines else 'same'}")
        for one in lines:
            _say(f"  {one}")
    for one in _misplaced():
        wrong += 1
        _say(one)
    return 1 if wrong else 0


def _misplaced() -> list[str]:
    """Files that no surface writes, and a list of tests that was changed by hand."""
    found = [f"{name}: no surface writes this file" for name in store.strangers(SURFACES)]
    try:
        ids.read_record()
    except (ids.IdsError, OSError) as error:
        found.append(f"tests: {error}")
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
