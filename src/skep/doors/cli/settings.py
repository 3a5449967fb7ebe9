"""`skep config`: every setting, its value and where it came from."""

import sys
from argparse import Namespace

import msgspec

from skep.config_load import masked, shown
from skep.doors.cli.listing import in_json, print_table
from skep.doors.cli.reference import example
from skep.doors.cli.server import settings_of


def show(args: Namespace) -> None:
    if args.example:
        sys.stdout.write(example())
        return
    settings, origins = settings_of(args)
    values = msgspec.structs.asdict(settings)
    if in_json(
        args, *({"name": name, "value": masked(value), "origin": origins[name]} for name, value in values.items())
    ):
        return
    print_table(("SETTING", "VALUE", "FROM"), [(name, shown(value), origins[name]) for name, value in values.items()])
