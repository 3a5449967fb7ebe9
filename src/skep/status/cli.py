"""`skep status` and `skep audit`: looking after a server."""

import time
from argparse import Namespace
from itertools import islice

from skep.base.errors import BadInput
from skep.client import Client
from skep.interfaces.terminal import ago, in_json, print_all, print_table

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def status(client: Client, args: Namespace) -> None:
    answer = client.status()
    if in_json(args, answer):
        return
    now = time.time()
    states = ", ".join(f"{count} {state}" for state, count in sorted(answer.sources.items()))
    print(f"skep {answer.version} at {client.url}, started {ago(answer.started_at, now)}")
    print(f"sources    {sum(answer.sources.values())}" + (f" ({states})" if states else ""))
    print(f"index      {answer.documents} files, {answer.indexed_bytes / 1e6:.1f} MB, {answer.shards} shards")
    looked = f", the stalest looked at {ago(answer.stalest, now)}" if answer.stalest else ""
    print(f"freshness  {answer.late} late{looked}")
    print(f"orders     {answer.orders_pending} pending, {answer.moving} sources moving")
    tasks = answer.tasks
    print(f"tasks      {tasks.ready} wait, {tasks.placed} have a worker, {tasks.ended} ended within a minute")
    if not any(one.role == "worker" and one.state == "alive" for one in answer.members):
        print("workers    none is attached; `skep worker token --join` makes the line that one joins with")
    print()
    members = [
        (one.name, one.role, one.state, ago(one.last_alive, now), one.status, answer.isolation.get(one.id, ""), one.id)
        for one in answer.members
    ]
    print_table(("MEMBER", "ROLE", "STATE", "HEARD", "DOING", "ISOLATION", "ID"), members)
    servers = [
        (one.name, " ".join(one.roles), one.state, one.url, f"{one.sources}", f"{one.due}") for one in answer.servers
    ]
    print()
    print_table(("SERVER", "ROLES", "STATE", "AT", "GATHERED", "DUE"), servers)
    print()
    print_table(("PROCESS", "SINCE", "SAYS"), [(one.id, ago(one.at, now), one.text) for one in answer.processes])


def audit(client: Client, args: Namespace) -> None:
    print_all(
        args,
        islice(client.audit.list(args.about), args.limit),
        ("WHEN", "WHO", "VERB", "WHAT"),
        lambda one, now: (ago(one.at, now), one.caller, one.verb, one.what),
    )


def span(text: str) -> float:
    """`90s`, `30m`, `12h`, `30d`, `2w`; a bare number is seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise BadInput(f"'{text}' is no length of time", hint="such as 90s, 30m, 12h, 30d or 2w")
    return float(int(number) * _UNITS[unit])
