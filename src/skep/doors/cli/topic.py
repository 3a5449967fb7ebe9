"""`skep topic …`: make, fill, read and follow topics."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.client import Client
from skep.client.topics import Outgoing
from skep.doors.cli import exits
from skep.doors.cli.admin import span
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.terminal import ago, clean, table, width
from skep.errors import BadInput
from skep.model.answers import TopicMessage
from skep.model.topic import Posted

#: lines of standard input that go into one request
_AT_ONCE = 500


def create(args: Namespace) -> int:
    seconds = None if args.retain is None else span(args.retain)
    with Client() as client:
        topic = client.topics.create(
            args.topic, partitions=args.partitions, retain_seconds=seconds, retain_bytes=args.retain_bytes
        )
    if args.json:
        print_json(topic)
    else:
        print(f"made {topic.name} with {topic.partitions} partition{'s' * (topic.partitions != 1)}")
    return exits.OK


def listing(args: Namespace) -> int:
    with Client() as client:
        topics = list(client.topics.list())
    return print_all(
        topics,
        ("NAME", "OWNER", "PARTITIONS", "MADE", "KEPT"),
        lambda one, now: (
            *(one.name, one.owner, str(one.partitions), ago(one.created_at, now)),
            _kept(one.retain_seconds, one.retain_bytes),
        ),
        json=args.json,
    )


def show(args: Namespace) -> int:
    with Client() as client:
        view = client.topics.show(args.topic)
    if args.json:
        print_json(view)
        return exits.OK
    topic = view.topic
    print(f"{topic.name}: {topic.owner}'s, made {ago(topic.created_at, time.time())}")
    print(f"kept    {_kept(topic.retain_seconds, topic.retain_bytes)}")
    print(f"groups  {', '.join(view.groups) or 'none'}")
    print()
    rows = [(str(one.partition), str(one.first), str(one.next), str(one.bytes)) for one in view.partitions]
    print(table(("PARTITION", "FIRST", "NEXT", "BYTES"), rows, width(sys.stdout)))
    return exits.OK


def _kept(seconds: float | None, bytes: int | None) -> str:
    limits = [f"{seconds:g} s" if seconds is not None else "", f"{bytes} bytes" if bytes is not None else ""]
    return ", ".join(filter(None, limits)) or "for ever"


def publish(args: Namespace) -> int:
    with Client() as client:
        for batch in _batches(args):
            for posted in client.topics.publish_batch(args.topic, batch):
                _tell(posted, args.json)
    return exits.OK


def _batches(args: Namespace) -> Iterator[list[Outgoing]]:
    """One message from the argument or the file, or one from each line of standard input."""
    if (args.message is None) == (args.file is None):
        raise BadInput("what is to be published?", hint="give a MESSAGE, - for the lines of standard input, or --file")
    if args.file is not None:
        try:
            text = Path(args.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read {args.file}: {error}", hint="a message is UTF-8 text or JSON") from error
        yield [_outgoing(args, text)]
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


def _tell(posted: Posted, as_json: bool) -> None:
    if as_json:
        print_json(posted)
    else:
        print(f"{posted.partition}/{posted.offset}")


def read(args: Namespace) -> int:
    with Client() as client:
        found = client.topics.read(
            args.topic, args.offset, partition=args.partition, max=args.limit, wait=span(args.wait) if args.wait else 0
        )
    if args.offset < found.first:
        print(f"skep: messages before {found.first} were trimmed", file=sys.stderr)
    for message in found.messages:
        _print(message, args.json)
    return exits.OK


def follow(args: Namespace) -> int:
    with Client() as client:
        offset = args.offset
        if offset is None:
            standings = client.topics.show(args.topic).partitions
            offset = next((one.next for one in standings if one.partition == args.partition), 0)
        for message in client.topics.follow(args.topic, offset, partition=args.partition):
            _print(message, args.json)
            sys.stdout.flush()
    return exits.OK


def _print(message: TopicMessage, as_json: bool) -> None:
    if as_json:
        print_json(message)
        return
    body = msgspec.json.encode(message.body).decode()
    print(clean(f"{message.offset}  {ago(message.at, time.time())}  {message.key}  {body}"))


def trim(args: Namespace) -> int:
    with Client() as client:
        standing = client.topics.trim(args.topic, args.before, partition=args.partition)
    if args.json:
        print_json(standing)
    else:
        print(f"partition {standing.partition} begins at {standing.first}; {standing.bytes} bytes are kept")
    return exits.OK


def lag(args: Namespace) -> int:
    with Client() as client:
        groups = [args.group] if args.group else client.topics.show(args.topic).groups
        found = [(name, one) for name in groups for one in client.topics.group(args.topic, name).lag()]
    if args.json:
        for name, one in found:
            print_json({"group": name, **msgspec.structs.asdict(one)})
        return exits.OK
    rows = [
        (name, str(one.partition), str(one.offset), str(one.end), str(one.lag), one.member or "") for name, one in found
    ]
    print(table(("GROUP", "PARTITION", "OFFSET", "END", "LAG", "MEMBER"), rows, width(sys.stdout)))
    return exits.OK
