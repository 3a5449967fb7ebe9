"""`skep searches`."""

import sys
from argparse import Namespace

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all
from skep.doors.cli.terminal import clean


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
    return print_all(
        found,
        ("NAME", "TOPIC", "OWNER", "QUERY"),
        lambda one, _: (one.name, one.topic, one.owner, one.query),
        json=args.json,
        none="no saved searches yet",
    )


def remove(args: Namespace) -> int:
    with Client() as client:
        client.searches.remove(args.name)
    return exits.OK
