"""`skep report`: what analysis found out about a source."""

import sys
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_json
from skep.doors.cli.terminal import clean, table, width
from skep.model.report import Hot, Report, Share

_LANGUAGES, _FUNCTIONS = 12, 10


def report(args: Namespace) -> int:
    with Client() as client:
        answer = client.sources.report(args.ref, args.commit)
    if args.json:
        print_json(answer)
        return exits.OK
    found, room = answer.report, width(sys.stdout)
    print(clean(f"{answer.name} at {found.commit[:12]}  licence: {found.licence or 'unknown'}"))
    print(_totals(found))
    rows = [_share(one.name or "other", one.share) for one in found.languages[:_LANGUAGES]]
    print("\n" + table(("LANGUAGE", "FILES", "LINES", "COMMENTS", "BYTES"), rows, room))
    if found.hot:
        print(
            "\n"
            + table(("SCORE", "COMPLEXITY", "FUNCTION", "PLACE"), [_hot(one) for one in found.hot[:_FUNCTIONS]], room)
        )
    return exits.OK


def _totals(found: Report) -> str:
    total, parts = found.total, []
    for name, share in (("test", found.test), ("vendored", found.vendored), ("generated", found.generated)):
        if share.files:
            parts.append(f"{100 * share.lines // max(1, total.lines)} % {name}")
    marks = f" ({', '.join(parts)})" if parts else ""
    means = f"mean score {found.score}, mean complexity {found.complexity}"
    return f"{total.files:,} files, {total.lines:,} lines{marks}; {found.functions:,} functions, {means}"


def _share(name: str, share: Share) -> tuple[str, ...]:
    return name, f"{share.files:,}", f"{share.lines:,}", f"{share.comments:,}", f"{share.bytes:,}"


def _hot(one: Hot) -> tuple[str, ...]:
    return f"{one.score:.1f}", str(one.complexity), one.name, f"{one.path}:{one.line}"
