"""`skep report`: what analysis found out about a source."""

from argparse import Namespace

from skep.client import Client
from skep.doors.cli.listing import in_json, print_table
from skep.doors.cli.terminal import clean
from skep.model.report import Hot, Report, Share

_LANGUAGES, _FUNCTIONS = 12, 10


def report(client: Client, args: Namespace) -> None:
    answer = client.sources.report(args.ref, args.commit)
    if in_json(args, answer):
        return
    found = answer.report
    print(clean(f"{answer.name} at {found.commit[:12]}  licence: {found.licence or 'unknown'}"))
    print(_totals(found) + "\n")
    rows = [_share(one.name or "other", one.share) for one in found.languages[:_LANGUAGES]]
    print_table(("LANGUAGE", "FILES", "LINES", "COMMENTS", "BYTES"), rows)
    if found.hot:
        print()
        print_table(("SCORE", "COMPLEXITY", "FUNCTION", "PLACE"), [_hot(one) for one in found.hot[:_FUNCTIONS]])


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
