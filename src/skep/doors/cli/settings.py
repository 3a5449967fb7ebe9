"""`skep config`: every setting, its value and where it came from."""

import sys
from argparse import Namespace

import msgspec

from skep.config_load import masked, shown
from skep.doors.cli import exits
from skep.doors.cli.reference import example
from skep.doors.cli.server import settings_of
from skep.doors.cli.terminal import table, width


def show(args: Namespace) -> int:
    if args.example:
        sys.stdout.write(example())
        return exits.OK
    settings, origins = settings_of(args)
    values = msgspec.structs.asdict(settings)
    if args.json:
        for name, value in values.items():
            one = {"name": name, "value": masked(value), "origin": origins[name]}
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
        return exits.OK
    rows = [(name, shown(value), origins[name]) for name, value in values.items()]
    print(table(("SETTING", "VALUE", "FROM"), rows, width(sys.stdout)))
    return exits.OK
