"""`skep token …`."""

import sys
from argparse import Namespace

from skep.client import Client
from skep.interfaces.terminal import ago, clean, in_json, print_all
from skep.status.cli import span


def create(client: Client, args: Namespace) -> None:
    """The token alone on stdout, so that a script can take it."""
    new = client.tokens.create(args.subject, args.scope, None if args.expires is None else span(args.expires))
    if in_json(args, new):
        return
    print(new.token)
    print(f"token {new.info.id} for {clean(new.info.subject)}; it is not shown again", file=sys.stderr)


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.tokens.list(),
        ("ID", "SUBJECT", "SCOPES", "CREATED", "EXPIRES"),
        lambda one, now: (
            *(one.id, one.subject, ", ".join(one.scopes)),
            *(ago(one.created_at, now), ago(one.expires_at, now)),
        ),
    )


def revoke(client: Client, args: Namespace) -> None:
    client.tokens.revoke(args.id)
    print(f"revoked {clean(args.id)}")
