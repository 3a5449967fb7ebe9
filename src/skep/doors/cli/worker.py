"""`skep worker …`: who does tasks."""

import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import in_json, print_all, print_facts
from skep.doors.cli.terminal import ago, clean
from skep.errors import BadInput, NotFound
from skep.fleet.events import UNSTABLE_DOWNS
from skep.model.answers import WorkerView

#: facts that count bytes
_BYTES = ("memory", "disk", "network")


def listing(client: Client, args: Namespace) -> None:
    """One line for each; `skep worker show` tells more."""
    head = ("NAME", "STATE", "HEARD", "HOLDS", "REPLICAS", "LOAD", "DISK FREE", "DOING", "ID")
    none = "no worker was ever attached; `skep worker token --join` makes the line that one joins with"
    print_all(args, client.workers.list(), head, _row, none=none)


def show(client: Client, args: Namespace) -> None:
    _print(args, _named(client, args.worker))


def drain(client: Client, args: Namespace) -> None:
    one = _named(client, args.worker)
    client.workers.drain(one.member.id)
    print(clean(f"{one.member.id} gives away the {one.holds} source(s) it holds; `skep worker show` says how far"))


def resume(client: Client, args: Namespace) -> None:
    client.workers.resume(id := _named(client, args.worker).member.id)
    print(clean(f"{id} keeps what it holds"))


def forget(client: Client, args: Namespace) -> None:
    client.workers.forget(id := _named(client, args.worker).member.id)
    print(clean(f"forgot {id}"))


def _named(client: Client, worker: str) -> WorkerView:
    """By id, or by a name that only one has."""
    found = [one for one in client.workers.list() if worker in (one.member.id, one.offer.name)]
    if not found:
        raise NotFound(f"there is no worker {worker!r}", hint="`skep worker list` shows those there are")
    if len(found) > 1:
        raise BadInput(f"{len(found)} workers are called {worker!r}", hint="name one by its id")
    return found[0]


def _row(one: WorkerView, now: float) -> tuple[str, ...]:
    member, facts = one.member, one.offer.facts
    load, free = (_text(name, facts[name]) if name in facts else "–" for name in ("load", "disk_free"))
    holds = (f"{one.holds}", f"{one.replicas}") if one.offer.mirror else ("–", "–")
    return (one.offer.name, _state(one), ago(member.last_alive, now), *holds, load, free, member.status, member.id)


def _state(one: WorkerView) -> str:
    return "draining" if one.draining and one.member.state == "alive" else one.member.state


def _text(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value / 1e9:.1f} GB" if name.startswith(_BYTES) else f"{value:.4g}"


def _print(args: Namespace, one: WorkerView) -> None:
    if in_json(args, one):
        return
    member, offer, now = one.member, one.offer, time.time()
    print(clean(f"{member.id}  {offer.name}  {_state(one)}, heard {ago(member.last_alive, now)}  {member.status}"))
    limits = {name: value for name, value in offer.facts.items() if name.startswith("limit.")}
    known = {name: value for name, value in offer.facts.items() if name not in {*limits, "sampled_at"}}
    less = ": it gets less than its share until it is steady" if one.downs >= UNSTABLE_DOWNS else ""
    sampled = float(offer.facts.get("sampled_at", 0.0))
    facts = {
        "kinds": ", ".join(offer.kinds),
        "at once": ", ".join(f"{slot} {count}" for slot, count in offer.slots.items()),
        "holds": f"{one.holds} sources and {one.replicas} replicas, capacity {offer.capacity:g}"
        if offer.mirror
        else "",
        "labels": ", ".join(offer.labels),
        "tools": ", ".join(offer.tools),
        "facts": ", ".join(f"{name} {_text(name, value)}" for name, value in known.items()),
        "sampled": ago(sampled, now) if sampled else "",
        "downs": f"{one.downs} within an hour{less}" if one.downs else "",
        "running": ", ".join(f"{task.name} ({task.id})" for task in one.running),
    }
    facts |= {name.replace(".", " "): str(value) for name, value in limits.items()}
    print_facts(facts, 16, "  ")


def select(client: Client, args: Namespace) -> int:
    """Exit code 1, as of a search, when no worker matches."""
    matches = client.workers.select(args.selector)
    head = ("WORKER", "MATCHES", "REASON")
    print_all(args, matches, head, lambda one, _: (one.worker, "yes" if one.matches else "no", one.reason))
    return exits.OK if any(one.matches for one in matches) else exits.NOTHING_FOUND
