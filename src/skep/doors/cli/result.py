"""`skep result …`."""

import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.plot import plot
from skep.doors.cli.terminal import ago, clean, width
from skep.errors import BadInput
from skep.model.result import MEASURES, Result, Series
from skep.results.readers import LARGEST, read

_HEAD = ("BENCHMARK", "GROUP", "METRIC", "VALUE", "COMMIT", "MACHINE", "RECORDED")


def listing(args: Namespace) -> int:
    def row(one: Result, now: float) -> list[str]:
        value = one.kind if one.kind == "failure" else f"{one.value:g} {one.unit}".strip()
        return [one.benchmark, one.group, one.metric, value, one.commit[:12], one.machine, ago(one.at, now)]

    with Client() as client:
        found = list(islice(client.results.list(args.where, order=args.order), args.limit))
    return print_all(found, _HEAD, row, json=args.json)


def show(args: Namespace) -> int:
    with Client() as client:
        found = client.results.show(args.id)
    if args.json:
        print_json(found)
        return exits.OK
    for key, value in msgspec.to_builtins(found).items():
        if value not in ("", [], {}):
            print(f"{key:<12}{clean(str(value))}")
    return exits.OK


def record(args: Namespace) -> int:
    # one byte more than may be there: then it is refused by its size
    try:
        with sys.stdin.buffer if args.file == "-" else Path(args.file).open("rb") as file:
            drafts = read(args.file, file.read(LARGEST + 1))
    except OSError as error:
        raise BadInput(f"cannot read {args.file}: {error.strerror}") from error
    with Client() as client:
        done = client.results.record(args.task, drafts)
    print_json({"recorded": done}) if args.json else print(f"{done} recorded")
    return exits.OK


def series(args: Namespace) -> int:
    with Client() as client:
        found = client.results.series(args.where)
    head = [name.upper() for name in Series.__struct_fields__]
    return print_all(found, head, lambda one, _: [part or "" for part in msgspec.structs.astuple(one)], json=args.json)


def show_plot(args: Namespace) -> int:
    with Client() as client:
        curves = client.results.series(args.where)
        for one in curves[: args.limit]:
            found = [point for point in client.results.points(one) if point.kind != "failure"]
            _draw(one, found, args.rows)
    if len(curves) > args.limit:
        print(f"{len(curves) - args.limit} more curves; a filter, or --limit, chooses", file=sys.stderr)
    if not curves:
        print("no such curves yet", file=sys.stderr)
    return exits.OK


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


def aggregate(args: Namespace) -> int:
    by = args.by.split(",") if args.by else []
    with Client() as client:
        found = client.results.aggregate(args.where, by)
    head = [name.upper() for name in (*by, "metric", "unit", *MEASURES)]
    return print_all(
        found,
        head,
        lambda one, _: [
            *map(str, one.by.values()), one.metric, one.unit, *(f"{getattr(one, name):g}" for name in MEASURES),
        ],
        json=args.json,
    )  # fmt: skip


def export(args: Namespace) -> int:
    fields = args.fields.split(",") if args.fields else []
    with Client() as client:
        for line in client.results.export(args.where, fields=fields, order=args.order, format=args.format):
            print(line)
    return exits.OK
