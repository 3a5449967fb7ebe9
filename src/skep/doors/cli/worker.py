"""`skep worker …`: who does tasks."""

import sys
import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_json
from skep.doors.cli.terminal import ago, clean, table, width
from skep.errors import BadInput, NotFound
from skep.model.answers import WorkerView


def listing(args: Namespace) -> int:
    with Client() as client:
        workers = client.workers.list()
    if args.json:
        for one in workers:
            print_json(one)
        return exits.OK
    for one in workers:
        _print(one)
    return exits.OK


def show(args: Namespace) -> int:
    with Client() as client:
        one = _named(client, args.worker)
    print_json(one) if args.json else _print(one)
    return exits.OK


def drain(args: Namespace) -> int:
    with Client() as client:
        one = _named(client, args.worker)
        client.workers.drain(one.member.id)
    print(clean(f"{one.member.id} gives away the {one.holds} source(s) it holds; `skep worker show` says how far"))
    return exits.OK


def resume(args: Namespace) -> int:
    with Client() as client:
        client.workers.resume(id := _named(client, args.worker).member.id)
    print(clean(f"{id} keeps what it holds"))
    return exits.OK


def forget(args: Namespace) -> int:
    with Client() as client:
        client.workers.forget(id := _named(client, args.worker).member.id)
    print(clean(f"forgot {id}"))
    return exits.OK


def _named(client: Client, worker: str) -> WorkerView:
    """By id, or by a name that only one has."""
    found = [one for one in client.workers.list() if worker in (one.member.id, one.offer.name)]
    if not found:
        raise NotFound(f"there is no worker {worker!r}", hint="`skep worker list` shows those there are")
    if len(found) > 1:
        raise BadInput(f"{len(found)} workers are called {worker!r}", hint="name one by its id")
    return found[0]


def _print(one: WorkerView) -> None:
    member, offer = one.member, one.offer
    state = "draining" if one.draining and member.state == "alive" else member.state
    heard = ago(member.last_alive, time.time())
    print(clean(f"{member.id}  {offer.name}  {state}, heard {heard}  {member.status}"))
    facts = {
        "kinds": ", ".join(offer.kinds),
        "at once": ", ".join(f"{slot} {count}" for slot, count in offer.slots.items()),
        "holds": f"{one.holds} sources and {one.replicas} replicas, capacity {offer.capacity:g}"
        if offer.mirror
        else "",
        "labels": ", ".join(offer.labels),
        "tools": ", ".join(offer.tools),
        "facts": ", ".join(f"{name} {value}" for name, value in offer.facts.items()),
        "running": ", ".join(f"{task.name} ({task.id})" for task in one.running),
    }
    print("\n".join(f"  {key:<9}{clean(value)}" for key, value in facts.items() if value))


def select(args: Namespace) -> int:
    """Exit code 1, as of a search, when no worker matches."""
    with Client() as client:
        matches = client.workers.select(args.selector)
    if args.json:
        for one in matches:
            print_json(one)
    else:
        rows = [(one.worker, "yes" if one.matches else "no", one.reason) for one in matches]
        print(table(("WORKER", "MATCHES", "REASON"), rows, width(sys.stdout)))
    return exits.OK if any(one.matches for one in matches) else exits.NOTHING_FOUND
