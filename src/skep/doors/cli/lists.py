"""`skep list …`: lists of sources, kept in git or by a forge."""

import sys
import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.parser import Command, json_option
from skep.doors.cli.terminal import ago, clean
from skep.errors import BadInput, NotFound
from skep.model.source_list import SourceList


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("add", help="follow a list", fill=_fill_add, run="lists:add")
    verbs.add_parser("list", help="all lists", fill=json_option, run="lists:listing")
    verbs.add_parser("show", help="one list, its problems and what waits", fill=_fill_named, run="lists:show")
    verbs.add_parser("entries", help="what a list names", fill=_fill_entries, run="lists:entries")
    verbs.add_parser("read", help="read it now", fill=_fill_ref, run="lists:read")
    verbs.add_parser("confirm", help="let it remove what waits", fill=_fill_sure, run="lists:confirm")
    verbs.add_parser("remove", help="follow it no longer", fill=_fill_sure, run="lists:remove")


def _fill_add(parser: Command) -> None:
    parser.add_argument(
        "url",
        metavar="URL",
        help="git repository, github:ORG, gitlab:GROUP, gitee:ORG, gitea:https://HOST/ORG or manifest:URL",
    )
    parser.add_argument("--private", action="store_true", help="it and its sources need the scope 'private'")
    parser.add_argument("--no-forks", action="store_true", help="leave out forks that an organisation holds")
    parser.add_argument("--no-archived", action="store_true", help="leave out what is archived there")
    json_option(parser)


def _fill_ref(parser: Command) -> None:
    parser.add_argument("ref", metavar="REF", help="id or URL, as `skep list list` shows it")


def _fill_named(parser: Command) -> None:
    _fill_ref(parser)
    json_option(parser)


def _fill_entries(parser: Command) -> None:
    _fill_named(parser)
    parser.add_argument("--gone", action="store_true", help="only what is no longer in it and waits to be removed")


def _fill_sure(parser: Command) -> None:
    _fill_ref(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add(args: Namespace) -> int:
    with Client() as client:
        found = client.lists.add(
            args.url,
            visibility="private" if args.private else "public",
            forks=not args.no_forks,
            archived=not args.no_archived,
        )
    if args.json:
        print_json(found)
    else:
        print(f"{found.id}  {clean(found.url)}")
    return exits.OK


def listing(args: Namespace) -> int:
    with Client() as client:
        found = client.lists.list()
    return print_all(
        found,
        ("ID", "URL", "STATE", "ENTRIES", "PROBLEMS", "READ"),
        lambda one, now: (
            *(one.id, one.url, one.state, str(one.entries), str(one.problems)),
            ago(one.read_at, now) if one.read_at else "",
        ),
        json=args.json,
        none="no lists yet; `skep list add URL` follows one",
    )


def show(args: Namespace) -> int:
    with Client() as client:
        found = _find(client, args.ref)
        problems = client.lists.problems(found.id)
    if args.json:
        print_json(found)
        for one in problems:
            print_json(one)
        return exits.OK
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
    print("\n".join(f"{key:<9}{clean(text)}" for key, text in facts.items() if text))
    for one in problems:
        print(clean(f"{one.file}:{one.line}: {one.message}"))
    return exits.OK


def entries(args: Namespace) -> int:
    with Client() as client:
        for one in client.lists.entries(_find(client, args.ref).id, gone=args.gone, limit=1_000):
            if args.json:
                print_json(one)
            else:
                print(clean(f"{one.file}:{one.line}  {one.name}  {one.url}"))
    return exits.OK


def read(args: Namespace) -> int:
    with Client() as client:
        found = client.lists.read(_find(client, args.ref).id)
    print(f"{clean(found.url)}  will be read")
    return exits.OK


def confirm(args: Namespace) -> int:
    with Client() as client:
        found = _find(client, args.ref)
        _ask(args, f"remove {found.waiting:,} sources and their mirrors?")
        client.lists.confirm(found.id, found.version)
    print(f"{clean(found.url)}  confirmed")
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        found = _find(client, args.ref)
        _ask(args, f"remove {clean(found.url)} and up to {found.entries:,} sources that only it names?")
        client.lists.remove(found.id)
    print(f"removed {clean(found.url)}")
    return exits.OK


def _ask(args: Namespace, question: str) -> None:
    if not args.yes and sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise BadInput("nothing was removed")


def _find(client: Client, ref: str) -> SourceList:
    for one in client.lists.list():
        if ref in (one.id, one.url):
            return one
    raise NotFound(f"there is no list {ref!r}", hint="`skep list list` shows those there are")
