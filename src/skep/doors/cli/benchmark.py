"""`skep benchmark …`: what each change did to the numbers."""

import sys
import time
from argparse import Namespace

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.files import read_tables, read_text
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.parser import Command, json_option
from skep.doors.cli.terminal import ago, clean, table, width
from skep.model.benchmark import Benchmark, BenchmarkSpec, Step


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("add", help="add the benchmarks of a file", fill=_fill_add, run="benchmark:add")
    verbs.add_parser("list", help="all benchmarks", fill=json_option, run="benchmark:listing")
    verbs.add_parser("show", help="how one stands, and its steps", fill=_fill_named, run="benchmark:show")
    verbs.add_parser("pause", help="measure nothing new", fill=_fill_named, run="benchmark:pause")
    verbs.add_parser("resume", help="go on, also after it failed", fill=_fill_named, run="benchmark:resume")
    verbs.add_parser("run", help="measure these commits as well", fill=_fill_run, run="benchmark:run")
    verbs.add_parser(
        "bisect", help="find the commit between two that differ", fill=_fill_bisect, run="benchmark:bisect"
    )
    verbs.add_parser("remove", help="forget it; what it measured stays", fill=_fill_name, run="benchmark:remove")


def _fill_add(parser: Command) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="TOML: one benchmark, or several [[benchmark]]; - for standard input"
    )
    parser.add_argument("--code", metavar="FILE", help="Python file with a subclass of skep.benchmark.Benchmark")
    json_option(parser)


def _fill_name(parser: Command) -> None:
    parser.add_argument("name", metavar="NAME", help="as `skep benchmark list` shows it")


def _fill_named(parser: Command) -> None:
    _fill_name(parser)
    json_option(parser)


def _fill_run(parser: Command) -> None:
    _fill_name(parser)
    parser.add_argument("revs", metavar="REVS", help="a commit, branch or tag, or OLD..NEW")
    parser.add_argument("--again", action="store_true", help="also what was measured already")
    json_option(parser)


def _fill_bisect(parser: Command) -> None:
    _fill_name(parser)
    parser.add_argument("revs", metavar="OLD..NEW", help="two commits of its branch")
    json_option(parser)


def add(args: Namespace) -> int:
    specs = read(args.file, args.code)
    with Client() as client:
        for spec in specs:
            _tell(client.benchmarks.add(spec), args.json)
    return exits.OK


def read(file: str, code: str | None = None) -> list[BenchmarkSpec]:
    specs = read_tables(file, "benchmark", BenchmarkSpec)
    return [msgspec.structs.replace(one, code=read_text(code)) for one in specs] if code else specs


def listing(args: Namespace) -> int:
    with Client() as client:
        found = list(client.benchmarks.list())
    return print_all(
        found,
        ("NAME", "SOURCE", "STATE", "MEASURED", "FAILED"),
        lambda one, now: (one.spec.name, one.spec.source, one.state, str(one.contexts), str(one.failed)),
        json=args.json,
        none="no benchmarks yet; `skep benchmark add FILE` adds one",
    )


def show(args: Namespace) -> int:
    with Client() as client:
        one, steps = client.benchmarks.show(args.name), client.benchmarks.steps(args.name)
    if args.json:
        print_json(one)
        for step in steps:
            print_json(step)
        return exits.OK
    facts = {
        "name": one.spec.name,
        "source": one.spec.source,
        "state": f"{one.state} {one.reason}".strip(),
        "measures": " ".join(one.spec.command) or "what its own code says",
        "commits": f"{one.contexts} measured, {one.failed} failed",
        "added": ago(one.created_at, time.time()),
    }
    print("\n".join(f"{key:<9}{clean(text)}" for key, text in facts.items()))
    if steps:
        print(
            table(
                ("CHANGE", "COMMIT", "METRIC", "AUTHOR", "SUBJECT", "STATE"),
                [_row(one) for one in steps],
                width(sys.stdout),
            )
        )
    return exits.OK


def _row(step: Step) -> tuple[str, ...]:
    what = f"{step.group} {step.metric}".strip()
    return (f"{step.change:+.1%}", step.commit[:12], what, step.author, step.subject, step.state)


def pause(args: Namespace) -> int:
    with Client() as client:
        _tell(client.benchmarks.pause(args.name), args.json)
    return exits.OK


def resume(args: Namespace) -> int:
    with Client() as client:
        _tell(client.benchmarks.resume(args.name), args.json)
    return exits.OK


def run(args: Namespace) -> int:
    with Client() as client:
        _tell(client.benchmarks.want(args.name, args.revs, again=args.again), args.json)
    return exits.OK


def bisect(args: Namespace) -> int:
    with Client() as client:
        _tell(client.benchmarks.want(args.name, args.revs, bisect=True), args.json)
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        client.benchmarks.remove(args.name)
    print(f"removed {clean(args.name)}")
    return exits.OK


def _tell(one: Benchmark, json: bool) -> None:
    if json:
        print_json(one)
    else:
        print(clean(f"{one.spec.name}  {one.state}  {one.reason}".strip()))
