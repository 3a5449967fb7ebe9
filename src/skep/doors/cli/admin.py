"""`skep status`, `skep token …` and `skep audit`: looking after a server."""

import sys
import time
from argparse import Namespace
from itertools import islice

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.terminal import ago, clean, table, width
from skep.errors import BadInput

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def status(args: Namespace) -> int:
    with Client() as client:
        answer = client.status()
    if args.json:
        print_json(answer)
        return exits.OK
    now = time.time()
    states = ", ".join(f"{count} {state}" for state, count in sorted(answer.sources.items()))
    print(f"skep {answer.version} at {client.url}, started {ago(answer.started_at, now)}")
    print(f"sources    {sum(answer.sources.values())}" + (f" ({states})" if states else ""))
    print(f"index      {answer.documents} files, {answer.indexed_bytes / 1e6:.1f} MB, {answer.shards} shards")
    print(f"freshness  {answer.late} late, the stalest looked at {ago(answer.stalest, now)}")
    print(f"orders     {answer.orders_pending} pending, {answer.moving} sources moving")
    members = [(one.id, one.role, one.state, ago(one.last_alive, now), one.status) for one in answer.members]
    print()
    print(table(("MEMBER", "ROLE", "STATE", "SEEN", "DOING"), members, width(sys.stdout)))
    servers = [
        (one.name, " ".join(one.roles), one.state, one.url, f"{one.sources}", f"{one.due}") for one in answer.servers
    ]
    print()
    print(table(("SERVER", "ROLES", "STATE", "AT", "GATHERED", "DUE"), servers, width(sys.stdout)))
    processes = [(one.id, ago(one.at, now), one.text) for one in answer.processes]
    print()
    print(table(("PROCESS", "SINCE", "SAYS"), processes, width(sys.stdout)))
    return exits.OK


def token_create(args: Namespace) -> int:
    """The token alone on stdout, so that a script can take it."""
    expires_in = None if args.expires is None else span(args.expires)
    with Client() as client:
        new = client.tokens.create(args.subject, args.scope, expires_in)
    if args.json:
        print_json(new)
        return exits.OK
    print(new.token)
    print(f"token {new.info.id} for {clean(new.info.subject)}; it is not shown again", file=sys.stderr)
    return exits.OK


def span(text: str) -> float:
    """`90s`, `30m`, `12h`, `30d`, `2w`; a bare number is seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise BadInput(f"'{text}' is no length of time", hint="such as 90s, 30m, 12h, 30d or 2w")
    return float(int(number) * _UNITS[unit])


def token_list(args: Namespace) -> int:
    with Client() as client:
        tokens = list(client.tokens.list())
    return print_all(
        tokens,
        ("ID", "SUBJECT", "SCOPES", "CREATED", "EXPIRES"),
        lambda one, now: (
            *(one.id, one.subject, ", ".join(one.scopes)),
            *(ago(one.created_at, now), ago(one.expires_at, now)),
        ),
        json=args.json,
    )


def audit(args: Namespace) -> int:
    with Client() as client:
        found = list(islice(client.audit.list(args.about), args.limit))
    return print_all(
        found,
        ("WHEN", "WHO", "VERB", "WHAT"),
        lambda one, now: (ago(one.at, now), one.caller, one.verb, one.what),
        json=args.json,
    )


def token_revoke(args: Namespace) -> int:
    with Client() as client:
        client.tokens.revoke(args.id)
    print(f"revoked {clean(args.id)}")
    return exits.OK
