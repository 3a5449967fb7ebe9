"""`skep completion SHELL`."""

import sys
from argparse import Namespace

import shtab

from skep.doors.cli import exits
from skep.doors.cli.parser import FullCommand, build


def show(args: Namespace) -> int:
    sys.stdout.write(shtab.complete(build(FullCommand), shell=args.shell) + "\n")
    return exits.OK
