"""`skep credential …`: secrets for upstreams and webhooks. They are read, never shown, and never part of a command."""

import sys
from argparse import Namespace
from getpass import getpass

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.terminal import ago, clean


def put(args: Namespace) -> int:
    secret = getpass("secret: ") if sys.stdin.isatty() else sys.stdin.read().strip()
    with Client() as client:
        info = client.credentials.put(
            args.name,
            args.host,
            secret,
            source=args.source,
            use=args.use,
            user=args.user,
            public=args.public,
        )
    if args.json:
        print_json(info)
    else:
        print(clean(f"{info.name} is set for {info.host}"))
    return exits.OK


def listing(args: Namespace) -> int:
    with Client() as client:
        found = client.credentials.list()
    return print_all(
        found,
        ("NAME", "HOST", "SOURCE", "USE", "SET", "NOTE"),
        lambda one, now: (
            *(one.name, one.host, one.source, one.use),
            ago(one.updated_at, now) if one.stored else "skep.toml",
            _note(one.refused, one.problem),
        ),
        json=args.json,
    )


def _note(refused: int, problem: str) -> str:
    return problem or (f"not accepted for {refused} source{'s' if refused > 1 else ''}" if refused else "")


def remove(args: Namespace) -> int:
    with Client() as client:
        client.credentials.remove(args.name)
    print(f"removed {clean(args.name)}")
    return exits.OK
