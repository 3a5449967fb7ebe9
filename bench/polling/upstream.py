"""The upstream of the polling benchmark, in a process of its own: N repositories behind a real `git http-backend`.

    PYTHONPATH=. python bench/polling/upstream.py FOLDER COUNT [--tls]

Prints its base URL and then serves until its standard input ends.
"""

import argparse
import sys
from pathlib import Path

from tests.support.forge import Forge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    with Forge(args.folder, tls=args.tls) as forge:
        for n in range(args.count):
            repo = forge.create(f"org/r{n}", {"README.md": b"repository %d\n" % n})
            for branch in range(3):
                repo.branch(f"topic/{branch}")
        print(forge.url(""), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
