"""`skep worker …`: who does tasks."""

import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

from skep.base.answers import WorkerView
from skep.base.errors import BadInput, NotFound, SkepError, Unavailable
from skep.cli.local import settings_of
from skep.client import Client
from skep.fleet.events import UNSTABLE_DOWNS
from skep.fleet.ring import Aim, wanted
from skep.interfaces import terminal
from skep.interfaces.terminal import ago, clean, in_json, print_all, print_facts
from skep.rpc.connect import keep_line
from skep.status.cli import span

# `skep autoscale`: as many workers as the work needs, by whatever command starts and stops them.

_PLACE = "{n}"


def run(args: Namespace) -> int:
    if not any(_PLACE in word for word in args.command):
        raise BadInput("the command says nowhere how many", hint=f"write {_PLACE} where the number belongs")
    if not 0 <= args.least <= args.most or args.within <= 0 or args.every <= 0:
        raise BadInput("--least is from 0 to --most, and times are more than 0", hint="see skep autoscale --help")
    aim = Aim(args.least, args.most, args.within)
    while True:
        try:
            done = _look(args, aim)
        except SkepError as error:
            if args.once:
                raise
            done = False
            print(clean(f"skep: {error.message}; tried again in {args.every:g} s"), file=sys.stderr)
        if args.once:
            return terminal.OK if done else terminal.TASK_FAILED
        time.sleep(args.every)
    return terminal.OK


def _look(args: Namespace, aim: Aim) -> bool:
    """False: the command failed."""
    with Client() as client:
        tasks, workers = client.workers.load(args.label), client.workers.list()
    alive = [
        one for one in workers if one.member.state == "alive" and (not args.label or args.label in one.offer.labels)
    ]
    number = wanted(len(alive), tasks, aim)
    if number == len(alive):
        return True
    why = f"{tasks.ready} tasks wait for them, they have {tasks.placed}, {tasks.ended} ended within a minute"
    print(f"{len(alive)} -> {number} workers: {why}", flush=True)
    try:
        code = subprocess.run([word.replace(_PLACE, str(number)) for word in args.command], check=False).returncode
    except OSError as error:
        raise BadInput(f"{args.command[0]} cannot be run: {error.strerror}", hint="is it installed?") from None
    if code:
        print(clean(f"skep: {args.command[0]} ended with {code}"), file=sys.stderr)
    return code == 0


# `skep worker token|tokens|revoke|join`: who may join the fleet.


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
    return terminal.OK if any(one.matches for one in matches) else terminal.NOTHING_FOUND
