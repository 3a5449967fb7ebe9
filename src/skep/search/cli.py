"""`skep search`: grouped and coloured for people, one line per match for pipes, one object per match for programs; and
`skep searches`."""

import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

import msgspec

from skep.cli.parser import Command
from skep.client import Client
from skep.interfaces import terminal
from skep.interfaces.terminal import ago, clean, colourful, paint, print_all, tell
from skep.search.api import Hit, Row, SearchAnswer, excerpts

# The words of a query on the command line.

_GUARD = "\0"
_OPTION = re.compile(r"-(-.*|h|C\d*)?")


def guarded(argv: Sequence[str]) -> list[str]:
    """`-test` is a word of a query, not an option: it is marked, so that argparse leaves it alone."""
    if not argv or argv[0] not in ("search", "searches"):
        return list(argv)
    return [_GUARD + word if word[:1] == "-" and not _OPTION.fullmatch(word) else word for word in argv]


def query(parser: Command) -> None:
    action = parser.add_argument("query", metavar="QUERY", nargs="+", type=_word, help="words are joined by blanks")
    # how shtab is told who completes it; see completion.py
    action.complete = {"bash": "_skep_query", "zsh": "_skep_query"}  # type: ignore[attr-defined]


def _word(word: str) -> str:
    return word.removeprefix(_GUARD)


#: with --count
_MOST_COUNTED = 100_000


def search(client: Client, args: Namespace) -> int:
    text = " ".join(args.query)
    if args.complete:
        return _complete(client, text)
    if args.count:
        return _count(args, client.search(text, 1, count=_MOST_COUNTED))
    text = f"{text} type:file" if args.files else text
    answer = client.search(text, args.lines, context=args.context, explain=args.explain)
    if args.json:
        lines = _objects(answer)
    elif colourful(args.color, sys.stdout):
        lines = _grouped(answer, time.time(), args.explain)
    else:
        lines = _flat(answer, args.explain)
    for line in lines:
        sys.stdout.write(line + "\n")
    if answer.partial:
        sys.stdout.flush()
        print(f"skep: {_shown(answer)} shown; there may be more (--lines N shows more)", file=sys.stderr)
    return terminal.OK if answer.hits or answer.sources or answer.records or answer.commits else terminal.NOTHING_FOUND


def _shown(answer: SearchAnswer) -> str:
    few = {"commits": len(answer.commits), "sources": len(answer.sources), "records": len(answer.records)}
    counts = few | {"lines": answer.lines, "files": len(answer.hits)}
    return next((f"{count} {kind}" for kind, count in counts.items() if count), "nothing")


def _complete(client: Client, text: str) -> int:
    """The query as it might go on, one in each line."""
    for one in client.complete(text):
        sys.stdout.write(clean(text[: one.start] + one.text.strip()) + "\n")
    return terminal.OK


def _count(args: Namespace, answer: SearchAnswer) -> int:
    counted = answer.counted
    more = "" if counted.exact else "+"
    lines = f"{counted.lines:,}{more} lines in {counted.files:,}{more} files"
    others = {"commits": answer.commits, "sources": answer.sources, "records": answer.records}
    kind = next((kind for kind, found in others.items() if found), "")
    tell(args, counted, f"{counted.files:,}{more} {kind}" if kind else lines)
    return terminal.OK if counted.files else terminal.NOTHING_FOUND


def _objects(answer: SearchAnswer) -> Iterator[str]:
    """A file found by its name alone has no matching line: line, column and text are null."""
    for one in (*answer.sources, *answer.records, *answer.commits):
        yield msgspec.json.encode(one).decode()
    for hit in answer.hits:
        about = {field: getattr(hit, field) for field in hit.__struct_fields__ if field not in ("lines", "more")}
        if not hit.why:
            del about["why"]
        for line in hit.lines or (None,):
            place: dict[str, object] = {
                "line": line and line.number,
                "column": line and line.column,
                "text": line and line.text,
                "ranges": line.ranges if line else (),
            }
            if line and (line.before or line.after):
                place |= {"before": line.before, "after": line.after}
            if line and line.symbol:
                place["symbol"] = line.symbol
            yield msgspec.json.encode({**about, **place}).decode()


def _flat(answer: SearchAnswer, explain: bool) -> Iterator[str]:
    for name in [*(one.name for one in answer.sources), *(one.name for one in answer.records)]:
        yield clean(name)
    for commit in answer.commits:
        yield clean(f"{commit.name}:{commit.commit}:{commit.subject}")
    cut = False
    for hit in answer.hits:
        place = f"{hit.name}:{hit.path}"
        if explain:
            yield clean(f"{place}: {_why(hit)}")
        elif not hit.lines:
            yield clean(place)
        for rows in excerpts(hit.lines):
            if cut and any(row.line is None for row in rows):
                yield "--"
            for row in rows:
                yield clean(f"{place}:{row.number}:{row.line.column}:{row.text}" if row.line else _beside(place, row))
            cut = True


def _beside(place: str, row: Row) -> str:
    return f"{place}-{row.number}-{row.text}"


def _grouped(answer: SearchAnswer, now: float, explain: bool) -> Iterator[str]:
    for source in answer.sources:
        fresh = f"{source.branch} {(source.commit or '')[:8]}, current {ago(source.fetched_at, now)}"
        yield f"{paint(clean(source.name), '1')}  {paint(clean(fresh) if source.branch else 'not searchable yet', '2')}"
    for record in answer.records:
        fields = " · ".join(f"{name} {_words(value)}" for name, value in record.fields.items())
        yield f"{paint(clean(record.name), '1')}  {paint(clean(fields), '2')}"
    for commit in answer.commits:
        yield f"{paint(clean(commit.name), '1')} {paint(commit.commit[:12], '35')}  {clean(commit.subject)}"
        yield paint(clean(f"    {commit.author}, {ago(commit.at, now)}"), "2")
        yield from (f"    {clean(line)}" for line in commit.lines)
    for number, hit in enumerate(answer.hits):
        if number:
            yield ""
        yield _header(hit, now)
        if explain:
            yield paint(clean(_why(hit)), "2")
        groups = excerpts(hit.lines)
        room = max((len(str(rows[-1].number)) for rows in groups), default=0)
        for nth, rows in enumerate(groups):
            if nth and any(row.line is None for row in rows):
                yield " " * room + "  …"
            for row in rows:
                yield f"{paint(str(row.number).rjust(room), '32' if row.line else '2')}  {_marked(row)}"
        if hit.more:
            yield " " * room + "  …"


def _header(hit: Hit, now: float) -> str:
    fresh = clean(f"{hit.branch} {hit.commit[:8]}, current {ago(hit.fetched_at, now)}")
    return f"{paint(clean(hit.name), '1')} {paint(clean(hit.path), '35')}  {paint(fresh, '2')}"


def _why(hit: Hit) -> str:
    return f"{hit.score:g} = " + " + ".join(f"{reason.name} {reason.points:g}" for reason in hit.why)


def _marked(row: Row) -> str:
    text, parts, at = clean(row.text), [], 0
    if row.line is None:
        return paint(text, "2")
    for start, end in row.line.ranges:
        parts += [text[at:start], paint(text[start:end], "1;31")]
        at = end
    return "".join(parts) + text[at:]


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def save(client: Client, args: Namespace) -> None:
    saved = client.searches.save(args.name, " ".join(args.query), topic=args.topic, first=args.first)
    tell(args, saved, f"what newly matches {saved.name} is told on {saved.topic}")


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.searches.list(),
        ("NAME", "TOPIC", "OWNER", "QUERY"),
        lambda one, _: (one.name, one.topic, one.owner, one.query),
        none="no saved searches yet",
    )


def remove(client: Client, args: Namespace) -> None:
    client.searches.remove(args.name)
