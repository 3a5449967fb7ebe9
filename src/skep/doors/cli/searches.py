"""`skep searches`."""

import sys
from argparse import Namespace

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.terminal import clean, table, width


def save(args: Namespace) -> int:
    with Client() as client:
        saved = client.searches.save(args.name, " ".join(args.query), topic=args.topic, first=args.first)
    if args.json:
        sys.stdout.write(msgspec.json.encode(saved).decode() + "\n")
    else:
        sys.stdout.write(clean(f"what newly matches {saved.name} is told on {saved.topic}") + "\n")
    return exits.OK


def listing(args: Namespace) -> int:
    with Client() as client:
        found = client.searches.list()
    if args.json:
        sys.stdout.writelines(msgspec.json.encode(one).decode() + "\n" for one in found)
    elif found:
        rows = [(one.name, one.topic, one.owner, one.query) for one in found]
        sys.stdout.write(table(("NAME", "TOPIC", "OWNER", "QUERY"), rows, width(sys.stdout)) + "\n")
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        client.searches.remove(args.name)
    return exits.OK
