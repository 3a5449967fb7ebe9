"""`skep list …`: lists of sources, kept in git or by a forge."""

import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli.listing import in_json, print_all, print_facts, tell
from skep.doors.cli.terminal import ago, clean, sure
from skep.errors import NotFound
from skep.model.source_list import SourceList


def add(client: Client, args: Namespace) -> None:
    found = client.lists.add(
        args.url,
        visibility="private" if args.private else "public",
        forks=not args.no_forks,
        archived=not args.no_archived,
    )
    tell(args, found, f"{found.id}  {found.url}")


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.lists.list(),
        ("ID", "URL", "STATE", "ENTRIES", "PROBLEMS", "READ"),
        lambda one, now: (
            *(one.id, one.url, one.state, str(one.entries), str(one.problems)),
            ago(one.read_at, now) if one.read_at else "",
        ),
        none="no lists yet; `skep list add URL` follows one",
    )


def show(client: Client, args: Namespace) -> None:
    found = _find(client, args.ref)
    problems = client.lists.problems(found.id)
    if in_json(args, found, *problems):
        return
    waits = f"{found.waiting:,} sources would be removed; `skep list confirm {found.id}` lets it"
    facts = {
        "id": found.id,
        "url": found.url,
        "state": found.state,
        "source": found.source or "",
        "version": found.version,
        "entries": str(found.entries),
        "read": ago(found.read_at, time.time()) if found.read_at else "never",
        "failure": found.failure,
        "waits": waits if found.state == "waiting" else "",
    }
    print_facts(facts, 9)
    for one in problems:
        print(clean(f"{one.file}:{one.line}: {one.message}"))


def entries(client: Client, args: Namespace) -> None:
    for one in client.lists.entries(_find(client, args.ref).id, gone=args.gone, limit=1_000):
        tell(args, one, f"{one.file}:{one.line}  {one.name}  {one.url}")


def read(client: Client, args: Namespace) -> None:
    found = client.lists.read(_find(client, args.ref).id)
    print(f"{clean(found.url)}  will be read")


def confirm(client: Client, args: Namespace) -> None:
    found = _find(client, args.ref)
    sure(args, f"remove {found.waiting:,} sources and their mirrors?")
    client.lists.confirm(found.id, found.version)
    print(f"{clean(found.url)}  confirmed")


def remove(client: Client, args: Namespace) -> None:
    found = _find(client, args.ref)
    sure(args, f"remove {found.url} and up to {found.entries:,} sources that only it names?")
    client.lists.remove(found.id)
    print(f"removed {clean(found.url)}")


def _find(client: Client, ref: str) -> SourceList:
    for one in client.lists.list():
        if ref in (one.id, one.url):
            return one
    raise NotFound(f"there is no list {ref!r}", hint="`skep list list` shows those there are")
