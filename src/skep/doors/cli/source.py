"""`skep source …`: what is mirrored."""

import math
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.main import complain
from skep.doors.cli.terminal import Bar, ago, clean
from skep.errors import BadInput, SkepError
from skep.model.answers import Fetching
from skep.model.caller import Visibility
from skep.model.source import Source

#: URLs of a file in one request
_AT_ONCE = 1_000


def add(args: Namespace) -> int:
    """Every URL is tried; the exit code is that of the first that went wrong."""
    if args.file is not None:
        return _add_file(args)
    if not args.url:
        raise BadInput("nothing to add", hint="give URLs, or --file with one in each line")
    code, added = exits.OK, []
    with Client() as client:
        for url in args.url:
            try:
                visibility: Visibility = "private" if args.private else "public"
                labels = args.label or ()
                answer = client.sources.add(absolute(url), kind=args.kind, visibility=visibility, labels=labels)
            except SkepError as error:
                complain(error)
                code = code or exits.code_of(error)
                continue
            added.append(answer.source)
            if not args.wait:
                _tell(answer.source, "added" if answer.created else "known already", args.json)
        for source in added if args.wait else ():
            code = _settle(client, source, 0.0, args.json) or code
    return code


def _add_file(args: Namespace) -> int:
    if args.url or args.wait:
        raise BadInput("--file stands alone: neither URLs nor --wait go with it")
    visibility, labels = "private" if args.private else None, args.label
    wanted = [
        {"url": absolute(url), "visibility": visibility, "labels": labels} for url in addresses(_lines(args.file))
    ]
    code = exits.OK
    with Client() as client:
        for first in range(0, len(wanted), _AT_ONCE):
            for item in client.sources.bulk(wanted[first : first + _AT_ONCE]).items:
                if args.json:
                    print_json(item)
                else:
                    print(clean(f"{item.status}  {item.url}" + (f"  {item.reason}" if item.reason else "")))
                if item.status == "refused":
                    code = exits.BAD_INPUT
    return code


def _lines(file: str) -> list[str]:
    try:
        return sys.stdin.readlines() if file == "-" else Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}") from error


def addresses(lines: Iterable[str]) -> list[str]:
    """One in each line; what follows a `#` that stands by itself is a remark."""
    bare = (re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip() for line in lines)
    return [url for url in bare if url]


def absolute(url: str) -> str:
    """A path means what it means here, wherever the server runs; anything else is left as it was typed."""
    if "://" in url or not (url.startswith((".", "/", "~")) or os.path.exists(url)):  # noqa: PTH110 - takes any text
        return url
    return os.path.abspath(Path(url).expanduser())  # noqa: PTH100 - folds `..` without following links


def listing(args: Namespace) -> int:
    with Client() as client:
        return print_all(
            client.sources.list(state=args.state),
            ("NAME", "STATE", "FETCHED", "NEXT POLL", "ID", "NOTE"),
            lambda one, now: (
                *(one.name, one.state, ago(one.last_fetched, now), ago(one.next_poll, now)),
                *(one.id, _note(one)),
            ),
            json=args.json,
            none="no sources yet; `skep source add URL` mirrors one",
        )


def show(args: Namespace) -> int:
    with Client() as client:
        source = client.sources.show(args.ref)
    if args.json:
        print_json(source)
        return exits.OK
    now = time.time()
    facts = {
        "name": source.name,
        "url": source.url,
        "id": source.id,
        "state": source.state,
        "note": _note(source),
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
    print("\n".join(f"{key:<11}{clean(value)}" for key, value in facts.items() if value))
    return exits.OK


def update(args: Namespace) -> int:
    labels = None if args.label is None else [label for label in args.label if label]
    url = None if args.url is None else absolute(args.url)
    settings = None if args.set is None else dict(_setting(text) for text in args.set)
    if (url, labels, args.visibility, settings) == (None, None, None, None):
        raise BadInput("nothing to change", hint="give --url, --label, --set, --private or --public")
    with Client() as client:
        source = client.sources.update(args.ref, url=url, visibility=args.visibility, labels=labels, settings=settings)
    _tell(source, "updated", args.json)
    return exits.OK


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


def fetch(args: Namespace) -> int:
    with Client() as client:
        return _fetched(client, client.sources.fetch(args.ref), args)


def fetch_url(args: Namespace) -> int:
    with Client() as client:
        asked = client.sources.fetch_url(absolute(args.url), visibility="private" if args.private else "public")
        return _fetched(client, asked, args)


def accept(args: Namespace) -> int:
    with Client() as client:
        source = client.sources.accept(args.ref)
        if args.wait:
            return _settle(client, source, math.nextafter(source.last_looked or 0.0, math.inf), args.json)
    _tell(source, "will be looked at now", args.json)
    return exits.OK


def _fetched(client: Client, asked: Fetching, args: Namespace) -> int:
    if args.wait or args.commit:
        return _settle(client, asked.source, asked.asked_at, args.json, args.commit)
    _tell(asked.source, "will be looked at now", args.json)
    return exits.OK


def reindex(args: Namespace) -> int:
    if bool(args.ref) == args.all:
        raise BadInput("which source?", hint="name one, or say --all for every source")
    with Client() as client:
        for ref in [args.ref] if args.ref else (source.id for source in client.sources.list()):
            _tell(client.sources.reindex(ref), "will be indexed anew", args.json)
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        source = client.sources.show(args.ref)
        if not args.yes and sys.stdin.isatty() and sys.stderr.isatty():
            print(f"remove {clean(source.name)} and its mirror? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise BadInput("nothing was removed")
        client.sources.remove(source.id)
    print(f"removed {clean(source.name)}")
    return exits.OK


def _settle(client: Client, source: Source, looked_after: float, as_json: bool, commit: str = "") -> int:
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
    _tell(source, "is searchable" if source.state == "current" else source.state, as_json)
    if source.state == "current":
        return exits.OK
    reason = source.failure.message if source.failure else f"its state is {source.state}"
    complain(SkepError(f"{source.url}: {reason}", hint="Skep goes on trying; `skep source show` tells when"))
    return exits.FAILED_SOURCE


def _note(source: Source) -> str:
    if source.progress and source.progress.total:
        return f"{source.progress.stage} {source.progress.done / source.progress.total:.0%}"
    return source.failure.message if source.failure else ""


def _tell(source: Source, what: str, as_json: bool) -> None:
    if as_json:
        print_json(source)
    else:
        print(clean(f"{source.id}  {source.name}  {what}"), flush=True)
