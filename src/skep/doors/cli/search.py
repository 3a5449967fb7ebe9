"""`skep search`: grouped and coloured for people, one line per match for pipes, one object per match for programs."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.terminal import ago, clean, colourful, paint
from skep.model.answers import Hit, SearchAnswer
from skep.model.search import Line


def search(args: Namespace) -> int:
    with Client() as client:
        answer = client.search(" ".join(args.query), args.lines)
    if args.json:
        lines = _objects(answer)
    elif colourful(args.color, sys.stdout):
        lines = _grouped(answer, time.time())
    else:
        lines = _flat(answer)
    for line in lines:
        sys.stdout.write(line + "\n")
    if answer.partial:
        sys.stdout.flush()
        print(f"skep: {answer.lines} lines shown; there may be more (--lines N shows more)", file=sys.stderr)
    return exits.OK if answer.hits else exits.NOTHING_FOUND


def _objects(answer: SearchAnswer) -> Iterator[str]:
    """A file found by its name alone has no matching line: line, column and text are null."""
    for hit in answer.hits:
        about = {"source": hit.source, "name": hit.name, "path": hit.path, "branch": hit.branch}
        about |= {"commit": hit.commit, "blob": hit.blob}
        for line in hit.lines or (None,):
            place = {
                "line": line and line.number,
                "column": line and line.column,
                "text": line and line.text,
                "ranges": line.ranges if line else (),
            }
            yield msgspec.json.encode({**about, **place, "fetched_at": hit.fetched_at}).decode()


def _flat(answer: SearchAnswer) -> Iterator[str]:
    for hit in answer.hits:
        place = f"{hit.name}:{hit.path}"
        if not hit.lines:
            yield clean(place)
        for line in hit.lines:
            yield clean(f"{place}:{line.number}:{line.column}:{line.text}")


def _grouped(answer: SearchAnswer, now: float) -> Iterator[str]:
    for number, hit in enumerate(answer.hits):
        if number:
            yield ""
        yield _header(hit, now)
        room = max((len(str(line.number)) for line in hit.lines), default=0)
        for line in hit.lines:
            yield f"{paint(str(line.number).rjust(room), '32')}  {_marked(line)}"
        if hit.more:
            yield " " * room + "  …"


def _header(hit: Hit, now: float) -> str:
    fresh = clean(f"{hit.branch} {hit.commit[:8]}, current {ago(hit.fetched_at, now)}")
    return f"{paint(clean(hit.name), '1')} {paint(clean(hit.path), '35')}  {paint(fresh, '2')}"


def _marked(line: Line) -> str:
    text, parts, at = clean(line.text), [], 0
    for start, end in line.ranges:
        parts += [text[at:start], paint(text[start:end], "1;31")]
        at = end
    return "".join(parts) + text[at:]
