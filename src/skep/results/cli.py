"""`skep result …`."""

import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

import msgspec

from skep.base.errors import BadInput
from skep.client import Client
from skep.interfaces.terminal import ago, clean, in_json, plot, print_all, tell, width
from skep.results.api import MEASURES, Aggregate, Result, Series
from skep.results.fields import LARGEST, read

_HEAD = ("BENCHMARK", "GROUP", "METRIC", "VALUE", "COMMIT", "MACHINE", "RECORDED")


def listing(client: Client, args: Namespace) -> None:
    def row(one: Result, now: float) -> list[str]:
        value = one.kind if one.kind == "failure" else f"{one.value:g} {one.unit}".strip()
        return [one.benchmark, one.group, one.metric, value, one.commit[:12], one.machine, ago(one.at, now)]

    print_all(args, islice(client.results.list(args.where, order=args.order), args.limit), _HEAD, row)


def show(client: Client, args: Namespace) -> None:
    found = client.results.show(args.id)
    if in_json(args, found):
        return
    for key, value in msgspec.to_builtins(found).items():
        if value not in ("", [], {}):
            print(f"{key:<12}{clean(str(value))}")


def record(client: Client, args: Namespace) -> None:
    # one byte more than may be there: then it is refused by its size
    try:
        with sys.stdin.buffer if args.file == "-" else Path(args.file).open("rb") as file:
            drafts = read(args.file, file.read(LARGEST + 1))
    except OSError as error:
        raise BadInput(f"cannot read {args.file}: {error.strerror}") from error
    done = client.results.record(args.task, drafts)
    tell(args, {"recorded": done}, f"{done} recorded")


def series(client: Client, args: Namespace) -> None:
    found = client.results.series(args.where)
    head = [name.upper() for name in Series.__struct_fields__]
    print_all(args, found, head, lambda one, _: [part or "" for part in msgspec.structs.astuple(one)])


def show_plot(client: Client, args: Namespace) -> None:
    curves = client.results.series(args.where)
    for one in curves[: args.limit]:
        found = [point for point in client.results.points(one) if point.kind != "failure"]
        _draw(one, found, args.rows)
    if len(curves) > args.limit:
        print(f"{len(curves) - args.limit} more curves; a filter, or --limit, chooses", file=sys.stderr)
    if not curves:
        print("no such curves yet", file=sys.stderr)


def _draw(series: Series, points: list[Result], rows: int) -> None:
    name = (series.benchmark, series.group, series.metric, series.ref, series.machine)
    print(clean("  ".join(part for part in name if part)))
    values = [point.value for point in points]
    ends = [f"{end:.4g} {series.unit or ''}".strip() for end in (max(values, default=0), min(values, default=0))]
    room, left = width(sys.stdout) or 80, max(map(len, ends))
    for n, line in enumerate(plot(values, room - left - 3, rows)):
        end = ends[0] if n == 0 else ends[1] if n == rows - 1 else ""
        print(f"{clean(end):>{left}} │{line}")
    if points:
        print(f"{'':>{left}}  {points[0].commit[:12]} … {points[-1].commit[:12]}, {len(points)} commits\n")


def aggregate(client: Client, args: Namespace) -> None:
    by = args.by.split(",") if args.by else []

    def row(one: Aggregate, _: float) -> list[str]:
        measures = (f"{getattr(one, name):g}" for name in MEASURES)
        return [*map(str, one.by.values()), one.metric, one.unit, *measures]

    head = [name.upper() for name in (*by, "metric", "unit", *MEASURES)]
    print_all(args, client.results.aggregate(args.where, by), head, row)


def export(client: Client, args: Namespace) -> None:
    fields = args.fields.split(",") if args.fields else []
    for line in client.results.export(args.where, fields=fields, order=args.order, format=args.format):
        print(line)
