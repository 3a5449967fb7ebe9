"""`skep topic …`: make, fill, read and follow topics."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import msgspec

from skep.base.errors import BadInput
from skep.client import Client
from skep.client.topics import Outgoing
from skep.interfaces.input_files import read_text
from skep.interfaces.terminal import ago, in_json, print_all, print_table, tell
from skep.status.cli import span
from skep.topics.api import TopicMessage

#: lines of standard input that go into one request
_AT_ONCE = 500


def create(client: Client, args: Namespace) -> None:
    seconds = None if args.retain is None else span(args.retain)
    topic = client.topics.create(
        args.topic, partitions=args.partitions, retain_seconds=seconds, retain_bytes=args.retain_bytes
    )
    tell(args, topic, f"made {topic.name} with {topic.partitions} partition{'s' * (topic.partitions != 1)}")


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.topics.list(),
        ("NAME", "OWNER", "PARTITIONS", "MADE", "KEPT"),
        lambda one, now: (
            *(one.name, one.owner, str(one.partitions), ago(one.created_at, now)),
            _kept(one.retain_seconds, one.retain_bytes),
        ),
    )


def show(client: Client, args: Namespace) -> None:
    view = client.topics.show(args.topic)
    if in_json(args, view):
        return
    topic = view.topic
    print(f"{topic.name}: {topic.owner}'s, made {ago(topic.created_at, time.time())}")
    print(f"kept    {_kept(topic.retain_seconds, topic.retain_bytes)}")
    print(f"groups  {', '.join(view.groups) or 'none'}")
    print()
    rows = [(str(one.partition), str(one.first), str(one.next), str(one.bytes)) for one in view.partitions]
    print_table(("PARTITION", "FIRST", "NEXT", "BYTES"), rows)


def _kept(seconds: float | None, bytes: int | None) -> str:
    limits = [f"{seconds:g} s" if seconds is not None else "", f"{bytes} bytes" if bytes is not None else ""]
    return ", ".join(filter(None, limits)) or "for ever"


def publish(client: Client, args: Namespace) -> None:
    for batch in _batches(args):
        for posted in client.topics.publish_batch(args.topic, batch):
            tell(args, posted, f"{posted.partition}/{posted.offset}")


def _batches(args: Namespace) -> Iterator[list[Outgoing]]:
    """One message from the argument or the file, or one from each line of standard input."""
    if (args.message is None) == (args.file is None):
        raise BadInput("what is to be published?", hint="give a MESSAGE, - for the lines of standard input, or --file")
    if args.file is not None:
        yield [_outgoing(args, read_text(args.file))]
    elif args.message != "-":
        yield [_outgoing(args, args.message)]
    else:
        batch = []
        for line in sys.stdin:
            batch.append(_outgoing(args, line.rstrip("\n")))
            # a person who types wants each line published at once
            if len(batch) >= _AT_ONCE or sys.stdin.isatty():
                yield batch
                batch = []
        if batch:
            yield batch


def _outgoing(args: Namespace, text: str) -> Outgoing:
    return Outgoing(_value(text), args.key, {}, args.partition)


def _value(text: str) -> Any:
    """JSON goes as what it is, all else as text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def read(client: Client, args: Namespace) -> None:
    found = client.topics.read(
        args.topic, args.offset, partition=args.partition, max=args.limit, wait=span(args.wait) if args.wait else 0
    )
    if args.offset < found.first:
        print(f"skep: messages before {found.first} were trimmed", file=sys.stderr)
    for message in found.messages:
        _print(args, message)


def follow(client: Client, args: Namespace) -> None:
    offset = args.offset
    if offset is None:
        standings = client.topics.show(args.topic).partitions
        offset = next((one.next for one in standings if one.partition == args.partition), 0)
    for message in client.topics.follow(args.topic, offset, partition=args.partition):
        _print(args, message)
        sys.stdout.flush()


def _print(args: Namespace, message: TopicMessage) -> None:
    body = msgspec.json.encode(message.body).decode()
    tell(args, message, f"{message.offset}  {ago(message.at, time.time())}  {message.key}  {body}")


def trim(client: Client, args: Namespace) -> None:
    standing = client.topics.trim(args.topic, args.before, partition=args.partition)
    tell(args, standing, f"partition {standing.partition} begins at {standing.first}; {standing.bytes} bytes are kept")


def lag(client: Client, args: Namespace) -> None:
    groups = [args.group] if args.group else client.topics.show(args.topic).groups
    found = [(name, one) for name in groups for one in client.topics.group(args.topic, name).lag()]
    if in_json(args, *({"group": name, **msgspec.structs.asdict(one)} for name, one in found)):
        return
    rows = [
        (name, str(one.partition), str(one.offset), str(one.end), str(one.lag), one.member or "") for name, one in found
    ]
    print_table(("GROUP", "PARTITION", "OFFSET", "END", "LAG", "MEMBER"), rows)
