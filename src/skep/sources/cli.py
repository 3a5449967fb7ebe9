"""`skep source …`: what is mirrored."""

import math
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from getpass import getpass
from pathlib import Path

import msgspec

from skep.base.answers import Fetching
from skep.base.caller import Visibility
from skep.base.errors import BadInput, NotFound, SkepError
from skep.cli.main import complain
from skep.client import Client
from skep.interfaces import terminal
from skep.interfaces.input_files import read_text
from skep.interfaces.terminal import Bar, ago, clean, in_json, print_all, print_facts, sure, tell
from skep.sources.model import Source, SourceList

# `skep credential …`: secrets for upstreams and webhooks. They are read, never shown, and never part of a command.


def put(client: Client, args: Namespace) -> None:
    secret = getpass("secret: ") if sys.stdin.isatty() else sys.stdin.read().strip()
    info = client.credentials.put(
        args.name,
        args.host,
        secret,
        source=args.source,
        use=args.use,
        user=args.user,
        public=args.public,
    )
    tell(args, info, f"{info.name} is set for {info.host}")


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.credentials.list(),
        ("NAME", "HOST", "SOURCE", "USE", "SET", "NOTE"),
        lambda one, now: (
            *(one.name, one.host, one.source, one.use),
            ago(one.updated_at, now) if one.stored else "skep.toml",
            _note(one.refused, one.problem),
        ),
    )


def _note(refused: int, problem: str) -> str:
    return problem or (f"not accepted for {refused} source{'s' if refused > 1 else ''}" if refused else "")


def remove(client: Client, args: Namespace) -> None:
    client.credentials.remove(args.name)
    print(f"removed {clean(args.name)}")


# `skep list …`: lists of sources, kept in git or by a forge.


def add(client: Client, args: Namespace) -> None:
    found = client.lists.add(
        args.url,
        visibility="private" if args.private else "public",
        forks=not args.no_forks,
        archived=not args.no_archived,
    )
    tell(args, found, f"{found.id}  {found.url}")


def lists_listing(client: Client, args: Namespace) -> None:
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


def lists_remove(client: Client, args: Namespace) -> None:
    found = _find(client, args.ref)
    sure(args, f"remove {found.url} and up to {found.entries:,} sources that only it names?")
    client.lists.remove(found.id)
    print(f"removed {clean(found.url)}")


def _find(client: Client, ref: str) -> SourceList:
    for one in client.lists.list():
        if ref in (one.id, one.url):
            return one
    raise NotFound(f"there is no list {ref!r}", hint="`skep list list` shows those there are")


#: URLs of a file in one request
_AT_ONCE = 1_000


def source_add(client: Client, args: Namespace) -> int:
    """Every URL is tried; the exit code is that of the first that went wrong."""
    if args.file is not None:
        return _add_file(client, args)
    if not args.url:
        raise BadInput("nothing to add", hint="give URLs, or --file with one in each line")
    code, added = terminal.OK, []
    for url in args.url:
        try:
            visibility: Visibility = "private" if args.private else "public"
            labels = args.label or ()
            answer = client.sources.add(absolute(url), kind=args.kind, visibility=visibility, labels=labels)
        except SkepError as error:
            complain(error)
            code = code or terminal.code_of(error)
            continue
        added.append(answer.source)
        if not args.wait:
            _tell(args, answer.source, "added" if answer.created else "known already")
    for source in added if args.wait else ():
        code = _settle(client, args, source, 0.0) or code
    return code


def _add_file(client: Client, args: Namespace) -> int:
    if args.url or args.wait:
        raise BadInput("--file stands alone: neither URLs nor --wait go with it")
    visibility, labels = "private" if args.private else None, args.label
    urls = addresses(read_text(args.file).splitlines())
    wanted = [{"url": absolute(url), "visibility": visibility, "labels": labels} for url in urls]
    code = terminal.OK
    for first in range(0, len(wanted), _AT_ONCE):
        for item in client.sources.bulk(wanted[first : first + _AT_ONCE]).items:
            tell(args, item, f"{item.status}  {item.url}" + (f"  {item.reason}" if item.reason else ""))
            if item.status == "refused":
                code = terminal.BAD_INPUT
    return code


def addresses(lines: Iterable[str]) -> list[str]:
    """One in each line; what follows a `#` that stands by itself is a remark."""
    bare = (re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip() for line in lines)
    return [url for url in bare if url]


def absolute(url: str) -> str:
    """A path means what it means here, wherever the server runs; anything else is left as it was typed."""
    if "://" in url or not (url.startswith((".", "/", "~")) or os.path.exists(url)):  # noqa: PTH110 - takes any text
        return url
    return os.path.abspath(Path(url).expanduser())  # noqa: PTH100 - folds `..` without following links


def source_listing(client: Client, args: Namespace) -> int:
    print_all(
        args,
        client.sources.list(state=args.state),
        ("NAME", "STATE", "FETCHED", "NEXT POLL", "ID", "NOTE"),
        lambda one, now: (
            *(one.name, one.state, ago(one.last_fetched, now), ago(one.next_poll, now)),
            *(one.id, _source_note(one)),
        ),
        none="no sources yet; `skep source add URL` mirrors one",
    )
    return terminal.OK


def source_show(client: Client, args: Namespace) -> None:
    source = client.sources.show(args.ref)
    if in_json(args, source):
        return
    now = time.time()
    facts = {
        "name": source.name,
        "url": source.url,
        "id": source.id,
        "state": source.state,
        "note": _source_note(source),
        "visibility": source.visibility,
        "labels": ", ".join(source.labels),
        "settings": msgspec.json.encode(source.settings).decode().strip("{}"),
        "holder": source.holder,
        "replicas": ", ".join(source.replicas),
        "branch": source.default_branch,
        "searchable": source.indexed_commit or "not yet",
        "looked at": ago(source.last_looked, now),
        "fetched": ago(source.last_fetched, now),
        "changed": ago(source.last_changed, now),
        "next poll": ago(source.next_poll, now),
        "added": ago(source.added_at, now),
    }
    print_facts(facts, 11)


def update(client: Client, args: Namespace) -> None:
    labels = None if args.label is None else [label for label in args.label if label]
    url = None if args.url is None else absolute(args.url)
    settings = None if args.set is None else dict(_setting(text) for text in args.set)
    if (url, labels, args.visibility, settings) == (None, None, None, None):
        raise BadInput("nothing to change", hint="give --url, --label, --set, --private or --public")
    source = client.sources.update(args.ref, url=url, visibility=args.visibility, labels=labels, settings=settings)
    _tell(args, source, "updated")


def _setting(text: str) -> tuple[str, object]:
    """Patterns are a list, times and priorities are numbers; nothing at all takes a setting back."""
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {text!r} is not KEY=VALUE", hint="such as force_push=ask")
    if not value:
        return key, None
    if key in ("refs", "branches"):
        return key, value.split(",")
    for number in (int, float):
        with suppress(ValueError):
            return key, number(value)
    return key, value


def fetch(client: Client, args: Namespace) -> int:
    return _fetched(client, client.sources.fetch(args.ref), args)


def fetch_url(client: Client, args: Namespace) -> int:
    asked = client.sources.fetch_url(absolute(args.url), visibility="private" if args.private else "public")
    return _fetched(client, asked, args)


def accept(client: Client, args: Namespace) -> int:
    source = client.sources.accept(args.ref)
    if args.wait:
        return _settle(client, args, source, math.nextafter(source.last_looked or 0.0, math.inf))
    _tell(args, source, "will be looked at now")
    return terminal.OK


def _fetched(client: Client, asked: Fetching, args: Namespace) -> int:
    if args.wait or args.commit:
        return _settle(client, args, asked.source, asked.asked_at, args.commit)
    _tell(args, asked.source, "will be looked at now")
    return terminal.OK


def reindex(client: Client, args: Namespace) -> None:
    if bool(args.ref) == args.all:
        raise BadInput("which source?", hint="name one, or say --all for every source")
    for ref in [args.ref] if args.ref else (source.id for source in client.sources.list()):
        _tell(args, client.sources.reindex(ref), "will be indexed anew")


def source_remove(client: Client, args: Namespace) -> None:
    source = client.sources.show(args.ref)
    sure(args, f"remove {source.name} and its mirror?")
    client.sources.remove(source.id)
    print(f"removed {clean(source.name)}")


def _settle(client: Client, args: Namespace, source: Source, looked_after: float, commit: str = "") -> int:
    """Waits until it is searchable (OK) or failing (FAILED_SOURCE), and shows how far it is meanwhile."""
    bar = Bar()
    while True:
        waited = client.sources.wait(
            source.id, looked_after=looked_after, commit=commit, timeout=0.5 if bar.live else 5.0
        )
        if waited.settled:
            break
        progress = waited.source.progress
        stage, done, total = (progress.stage, progress.done, progress.total) if progress else (source.state, 0, 0)
        bar.show(waited.source.name, stage, done, total)
    bar.done()
    source = waited.source
    _tell(args, source, "is searchable" if source.state == "current" else source.state)
    if source.state == "current":
        return terminal.OK
    reason = source.failure.message if source.failure else f"its state is {source.state}"
    complain(SkepError(f"{source.url}: {reason}", hint="Skep goes on trying; `skep source show` tells when"))
    return terminal.FAILED_SOURCE


def _source_note(source: Source) -> str:
    if source.progress and source.progress.total:
        return f"{source.progress.stage} {source.progress.done / source.progress.total:.0%}"
    return source.failure.message if source.failure else ""


def _tell(args: Namespace, source: Source, what: str) -> None:
    tell(args, source, f"{source.id}  {source.name}  {what}")
