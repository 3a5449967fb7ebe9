"""`skep dataone …`: Member Nodes and what was harvested from them."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_json
from skep.doors.cli.terminal import ago, clean, table, width
from skep.errors import BadInput
from skep.model.dataone import MemberNode, NodeEdit, Story

_HEAD = ("NODE", "NAME", "STATE", "HELD", "QUEUED", "PARKED", "LISTED", "NOTE")


def nodes(args: Namespace) -> int:
    with Client() as client:
        return _show(client.dataone.nodes(), args.json)


def node(args: Namespace) -> int:
    with Client() as client:
        return _show([client.dataone.node(args.node)], args.json)


def approve(args: Namespace) -> int:
    with Client() as client:
        return _show([client.dataone.approve(args.node)], args.json)


def put(args: Namespace) -> int:
    edit = NodeEdit(args.paused, args.connections, args.rate, args.bytes)
    with Client() as client:
        return _show([client.dataone.set(args.node, edit)], args.json)


def reconcile(args: Namespace) -> int:
    try:
        since = datetime.fromisoformat(args.since).timestamp() if args.since else None
    except ValueError:
        raise BadInput(f"{args.since!r} is no time", hint="such as 2026-01-31T12:00:00Z") from None
    with Client() as client:
        return _show([client.dataone.reconcile(args.node, since)], args.json)


def replay(args: Namespace) -> int:
    with Client() as client:
        return _show([client.dataone.replay(args.node, args.pid)], args.json)


def explain(args: Namespace) -> int:
    with Client() as client:
        story = client.dataone.explain(args.pid)
    if args.json:
        print_json(story)
    else:
        print("\n".join(clean(line) for line in _tell(story, time.time())))
    return exits.OK


def index(args: Namespace) -> int:
    with Client() as client:
        found = client.dataone.index(bulk=args.bulk, audit=args.audit)
    if args.json:
        print_json(found)
    else:
        mode = "bulk-load mode, nothing is indexed" if found.bulk else "indexing"
        print(f"{mode}: {found.waiting:,} waiting, the oldest since {ago(found.oldest, time.time())}")
    return exits.OK


def _show(found: Sequence[MemberNode], json: bool) -> int:
    if json:
        for one in found:
            print_json(one)
        return exits.OK
    now = time.time()
    rows = [
        (
            *(one.id, one.name, _state(one)),
            *(str(one.objects.get(state, 0)) for state in ("held", "queued", "parked")),
            *(ago(one.listed_at or None, now), one.note),
        )
        for one in found
    ]
    print(table(_HEAD, rows, width(sys.stdout)))
    return exits.OK


def _state(one: MemberNode) -> str:
    if one.source is None:
        return "waits for approval"
    return "paused" if one.paused else "harvested"


def _tell(story: Story, now: float) -> list[str]:
    kept = "with its bytes" if story.kept else "without its bytes"
    lines = [f"{story.pid} is {story.state}" + (f" as {story.format}, {kept}" if story.format else "")]
    if len(story.versions) > 1:
        lines.append("versions: " + " -> ".join(story.versions))
    lines += [f"replica at {node}: {status}" for node, status in story.replicas.items()]
    for one in story.offers:
        again = f", tried {one.tries} times, again in {max(0.0, one.due - now):.0f} s" if one.tries else ""
        lines.append(f"{one.node}: {one.state}{again}" + (f" ({one.reason})" if one.reason else ""))
    for aside in story.aside:
        place = f"{aside.size} bytes of what came instead, from byte {aside.start} of the blob {aside.blob}"
        lines.append(f"kept aside from {aside.node}: {place} ({aside.reason})")
    for chapter in story.chapters:
        times = f", {chapter.times} times" if chapter.times > 1 else ""
        lines.append(f"{ago(chapter.at, now)}: {chapter.node}: {chapter.verdict}{times}: {chapter.reason}")
    return lines
