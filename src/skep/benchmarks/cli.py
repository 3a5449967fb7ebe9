"""`skep benchmark …`: what each change did to the numbers."""

import time
from argparse import Namespace

import msgspec

from skep.benchmarks.api import Benchmark, BenchmarkSpec, Step
from skep.client import Client
from skep.interfaces.input_files import read_tables, read_text
from skep.interfaces.terminal import ago, clean, in_json, print_all, print_facts, print_table, tell


def add(client: Client, args: Namespace) -> None:
    for spec in read(args.file, args.code):
        _tell(args, client.benchmarks.add(spec))


def read(file: str, code: str | None = None) -> list[BenchmarkSpec]:
    specs = read_tables(file, "benchmark", BenchmarkSpec)
    return [msgspec.structs.replace(one, code=read_text(code)) for one in specs] if code else specs


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.benchmarks.list(),
        ("NAME", "SOURCE", "STATE", "MEASURED", "FAILED"),
        lambda one, now: (one.spec.name, one.spec.source, one.state, str(one.contexts), str(one.failed)),
        none="no benchmarks yet; `skep benchmark add FILE` adds one",
    )


def show(client: Client, args: Namespace) -> None:
    one, steps = client.benchmarks.show(args.name), client.benchmarks.steps(args.name)
    if in_json(args, one, *steps):
        return
    facts = {
        "name": one.spec.name,
        "source": one.spec.source,
        "state": f"{one.state} {one.reason}".strip(),
        "measures": " ".join(one.spec.command) or "what its own code says",
        "commits": f"{one.contexts} measured, {one.failed} failed",
        "added": ago(one.created_at, time.time()),
    }
    print_facts(facts, 9)
    if steps:
        print_table(("CHANGE", "COMMIT", "METRIC", "AUTHOR", "SUBJECT", "STATE"), [_row(one) for one in steps])


def _row(step: Step) -> tuple[str, ...]:
    what = f"{step.group} {step.metric}".strip()
    return (f"{step.change:+.1%}", step.commit[:12], what, step.author, step.subject, step.state)


def pause(client: Client, args: Namespace) -> None:
    _tell(args, client.benchmarks.pause(args.name))


def resume(client: Client, args: Namespace) -> None:
    _tell(args, client.benchmarks.resume(args.name))


def run(client: Client, args: Namespace) -> None:
    _tell(args, client.benchmarks.want(args.name, args.revs, again=args.again))


def bisect(client: Client, args: Namespace) -> None:
    _tell(args, client.benchmarks.want(args.name, args.revs, bisect=True))


def remove(client: Client, args: Namespace) -> None:
    client.benchmarks.remove(args.name)
    print(f"removed {clean(args.name)}")


def _tell(args: Namespace, one: Benchmark) -> None:
    tell(args, one, f"{one.spec.name}  {one.state}  {one.reason}".strip())
