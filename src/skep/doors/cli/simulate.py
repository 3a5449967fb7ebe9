"""`skep simulate`: how fresh mirrors would be, and at what load, by the schedule's own policy and no network."""

import sys
import tomllib
from argparse import Namespace
from pathlib import Path
from typing import get_args

import msgspec

from skep.config import PollRule, Settings
from skep.doors.cli import exits
from skep.doors.cli.parser import Command, json_option
from skep.doors.cli.terminal import table, width
from skep.errors import BadInput
from skep.schedule.cadence import Bounds
from skep.schedule.policy import Policy
from skep.schedule.population import Population, mix
from skep.schedule.simulate import SOURCEGRAPH, Freshness, simulate

_DAY = 86_400.0
_USUAL = Settings()


def fill(parser: Command) -> None:
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--sources", metavar="N", type=int, default=1000, help="a usual mix of so many sources (1000)")
    who.add_argument("--file", metavar="FILE", help="TOML: [[group]] tables with sources and commits_per_day")
    parser.add_argument(
        "--days", metavar="N", type=float, default=60.0, help="how long; a third of it is learning (60)"
    )
    parser.add_argument(
        "--budget",
        metavar="N",
        type=float,
        default=0.0,
        help="looks a day of all together; else as many as age/2 takes",
    )
    parser.add_argument("--rule", choices=get_args(PollRule), default=_USUAL.poll_rule, help="as the setting poll_rule")
    parser.add_argument("--poll-min", metavar="S", type=float, default=_USUAL.poll_min, help="as the setting (60)")
    parser.add_argument("--poll-max", metavar="S", type=float, default=_USUAL.poll_max, help="as the setting (86400)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="other chances (0)")
    json_option(parser)


def run(args: Namespace) -> int:
    rates = _population(args).rates()
    if not 0 < args.poll_min <= args.poll_max or args.budget < 0 or not 0 < args.days <= 3650:
        raise BadInput("these make no schedule", hint="0 < poll-min <= poll-max, 0 < days <= 3650, budget at least 0")
    theirs = simulate(rates, args.days, Policy("age", SOURCEGRAPH, args.budget / _DAY), args.seed)
    budget = (args.budget or theirs.looks_per_day) / _DAY
    ours = simulate(rates, args.days, Policy(args.rule, Bounds(args.poll_min, args.poll_max), budget), args.seed)
    found = {args.rule: ours, "age/2 within 45 s and 8 h": theirs}
    if args.json:
        for name, freshness in found.items():
            print(msgspec.json.encode({"rule": name, **msgspec.structs.asdict(freshness)}).decode())
        return exits.OK
    head = ("RULE", "LOOKS/DAY", "EACH", "MEAN LAG", "P50", "P95", "LONGEST UNSEEN")
    print(table(head, [_row(name, freshness, len(rates)) for name, freshness in found.items()], width(sys.stdout)))
    if ours.mean and theirs.mean:
        print(f"{ours.commits} commits; {args.rule} sees them {theirs.mean / ours.mean:.2f} times as soon")
    return exits.OK


def _population(args: Namespace) -> Population:
    if not args.file:
        if not 0 < args.sources <= 1_000_000:
            raise BadInput(f"{args.sources} sources cannot be simulated", hint="1 to 1000000")
        return mix(args.sources)
    try:
        return msgspec.convert(tomllib.loads(Path(args.file).read_text("utf-8")), Population)
    except OSError as error:
        raise BadInput(f"{args.file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        hint = "[[group]] with sources = 100 and commits_per_day = 0.5, as often as needed"
        raise BadInput(f"{args.file}: is no population: {error}", hint=hint) from error


def _row(name: str, found: Freshness, sources: int) -> tuple[str, ...]:
    lags = (found.mean, found.p50, found.p95, found.longest)
    return (name, f"{found.looks_per_day:.0f}", f"{found.looks_per_day / sources:.2f}", *map(_minutes, lags))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
