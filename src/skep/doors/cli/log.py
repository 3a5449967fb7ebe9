"""`skep log`: what every process says."""

import sys
import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli.listing import print_json
from skep.doors.cli.terminal import clean
from skep.model.log import LogLine

_WAIT_SECONDS = 30.0


def show(client: Client, args: Namespace) -> None:
    asked = {"level": args.level, "process": args.process, "about": args.about}
    lines = client.log(limit=args.lines, **asked)
    _print(lines, args.json)
    last = lines[-1].n if lines else 0
    while args.follow:
        lines = client.log(after=last, limit=1000, wait=_WAIT_SECONDS, **asked)
        _print(lines, args.json)
        last = lines[-1].n if lines else last


def _print(lines: list[LogLine], as_json: bool) -> None:
    for line in lines:
        if as_json:
            print_json(line)
            continue
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
        first, *rest = line.text.split("\n")
        print(clean(f"{at} {line.level:7} {line.process} {first}"))
        for more in rest:
            print("  " + clean(more))
    sys.stdout.flush()
