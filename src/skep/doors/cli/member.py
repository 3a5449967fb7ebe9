"""`skep worker token|tokens|revoke|join`: who may join the fleet."""

import sys
from argparse import Namespace
from pathlib import Path

from skep.client import Client
from skep.doors.cli.admin import span
from skep.doors.cli.listing import in_json, print_all
from skep.doors.cli.server import settings_of
from skep.doors.cli.terminal import ago, clean
from skep.errors import Unavailable
from skep.link.join import keep_line


def token(client: Client, args: Namespace) -> None:
    """The token or the line alone on stdout, so that a script can take it."""
    expires_in = None if args.expires is None else span(args.expires)
    new = client.workers.create_token(args.name, args.role or ["worker"], shared=args.shared, expires_in=expires_in)
    if args.join and not new.join:
        raise Unavailable(
            "this server takes no members from elsewhere", hint="set link_listen there, then `skep ca init`"
        )
    if in_json(args, new):
        return
    print(new.join if args.join else new.token)
    whose = f" for {clean(new.info.name)}" if new.info.name else ""
    print(f"token {new.info.id}{whose}; it is not shown again", file=sys.stderr)


def tokens(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.workers.tokens(),
        ("ID", "NAME", "FOR", "MEMBERS", "CREATED", "EXPIRES"),
        lambda one, now: (
            *(one.id, one.name, ", ".join(one.roles) + (", shared" if one.shared else "")),
            *(", ".join(one.members), ago(one.created_at, now)),
            f"revoked {ago(one.revoked_at, now)}" if one.revoked_at else ago(one.expires_at, now),
        ),
    )


def revoke(client: Client, args: Namespace) -> None:
    client.workers.revoke_token(args.id)
    print(f"revoked {clean(args.id)}")


def join(args: Namespace) -> None:
    settings, _ = settings_of(args)
    line = keep_line(Path(settings.data), sys.stdin.readline() if args.line == "-" else args.line)
    where = f"in {settings.data}: skep worker (or manager) --data {settings.data}"
    print(f"joins {', '.join(line.coordinators)} when started {where}")
