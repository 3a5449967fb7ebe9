"""`skep dataone …`: Member Nodes and what was harvested from them."""

import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from skep.base.errors import BadInput
from skep.client import Client
from skep.dataone.api import MemberNode, NodeEdit, Story
from skep.interfaces.terminal import ago, clean, in_json, print_all, print_facts, tell

_HEAD = ("NODE", "NAME", "STATE", "HELD", "QUEUED", "PARKED", "LISTED", "NOTE")


def nodes(client: Client, args: Namespace) -> None:
    _show(args, client.dataone.nodes())


def node(client: Client, args: Namespace) -> None:
    one, now = client.dataone.node(args.node), time.time()
    if in_json(args, one):
        return
    facts = {
        "node": one.id,
        "name": one.name,
        "url": one.url,
        "state": _state(one),
        "objects": _counts(one.objects),
        "verdicts": _counts(one.verdicts),
        "listed": ago(one.listed_at or None, now),
        "place": f"everything dated before {_moment(one.place)} is listed" if one.place else "",
        "pass": "" if one.full_place is None else f"over everything, at {_moment(one.full_place)}",
        "next": ago(one.next_at, now) if one.next_at else "",
        "limits": msgspec.json.encode(one.limits).decode().strip("{}"),
        "skew": f"its clock is {one.skew:+.1f} s ahead" if one.skew else "",
        "note": one.note,
    }
    print_facts(facts, 10)


def approve(client: Client, args: Namespace) -> None:
    _show(args, [client.dataone.approve(args.node)])


def put(client: Client, args: Namespace) -> None:
    edit = NodeEdit(args.paused, args.connections, args.rate, args.bytes)
    _show(args, [client.dataone.set(args.node, edit)])


def reconcile(client: Client, args: Namespace) -> None:
    try:
        since = datetime.fromisoformat(args.since).timestamp() if args.since else None
    except ValueError:
        raise BadInput(f"{args.since!r} is no time", hint="such as 2026-01-31T12:00:00Z") from None
    if not args.dry_run:
        _show(args, [client.dataone.reconcile(args.node, since)])
        return
    found = client.dataone.preview(args.node, since)
    named = "".join(f"\n  {clean(pid)}" for pid in found.named)
    if not in_json(args, found):
        print(f"{found.total:,} listed, {found.listed:,} compared: {_counts(found.counts)}{named}")


def replay(client: Client, args: Namespace) -> None:
    _show(args, [client.dataone.replay(args.node, args.pid)])


def explain(client: Client, args: Namespace) -> None:
    story = client.dataone.explain(args.pid)
    if not in_json(args, story):
        print("\n".join(clean(line) for line in _tell(story, time.time())))


def index(client: Client, args: Namespace) -> None:
    found = client.dataone.index(bulk=args.bulk, audit=args.audit)
    mode = "bulk-load mode, nothing is indexed" if found.bulk else "indexing"
    oldest = f", the oldest since {ago(found.oldest, time.time())}" if found.oldest else ""
    tell(args, found, f"{mode}: {found.waiting:,} waiting{oldest}")


def _show(args: Namespace, found: Sequence[MemberNode]) -> None:
    print_all(args, found, _HEAD, _row)


def _row(one: MemberNode, now: float) -> tuple[str, ...]:
    counts = (str(one.objects.get(state, 0)) for state in ("held", "queued", "parked"))
    return one.id, one.name, _state(one), *counts, ago(one.listed_at or None, now), one.note


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in found.items())


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _state(one: MemberNode) -> str:
    if one.source is None:
        return "waits for approval"
    return "paused" if one.paused else "harvested"


def _tell_series(story: Story) -> list[str]:
    head = "its head is not for you" if story.state == "series" else f"its head is {story.pid}"
    return [f"{story.series} is a series, {head}", "members: " + ", ".join(story.members)]


def _tell(story: Story, now: float) -> list[str]:
    lines = _tell_series(story) if story.series else []
    if story.state == "series":
        return lines
    kept = "with its bytes" if story.kept else "without its bytes"
    lines.append(f"{story.pid} is {story.state}" + (f" as {story.format}, {kept}" if story.format else ""))
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
