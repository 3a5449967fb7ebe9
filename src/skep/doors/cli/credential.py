"""`skep credential …`: secrets for upstreams and webhooks. They are read, never shown, and never part of a command."""

import sys
from argparse import Namespace
from getpass import getpass

from skep.client import Client
from skep.doors.cli.listing import print_all, tell
from skep.doors.cli.terminal import ago, clean


def put(client: Client, args: Namespace) -> None:
    secret = getpass("secret: ") if sys.stdin.isatty() else sys.stdin.read().strip()
    info = client.credentials.put(
        args.name,
        args.host,
        secret,
        source=args.source,
        use=args.use,
        user=args.user,
        public=args.public,
    )
    tell(args, info, f"{info.name} is set for {info.host}")


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.credentials.list(),
        ("NAME", "HOST", "SOURCE", "USE", "SET", "NOTE"),
        lambda one, now: (
            *(one.name, one.host, one.source, one.use),
            ago(one.updated_at, now) if one.stored else "skep.toml",
            _note(one.refused, one.problem),
        ),
    )


def _note(refused: int, problem: str) -> str:
    return problem or (f"not accepted for {refused} source{'s' if refused > 1 else ''}" if refused else "")


def remove(client: Client, args: Namespace) -> None:
    client.credentials.remove(args.name)
    print(f"removed {clean(args.name)}")
