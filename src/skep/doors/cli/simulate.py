"""`skep simulate`: how fresh mirrors would be, and at what load, by the schedule's own policy and no network."""

import tomllib
from argparse import Namespace

import msgspec

from skep.doors.cli.files import read_text
from skep.doors.cli.listing import in_json, print_table
from skep.errors import BadInput
from skep.schedule.cadence import Bounds
from skep.schedule.policy import Policy
from skep.schedule.population import Population, mix
from skep.schedule.simulate import SOURCEGRAPH, Freshness, simulate

_DAY = 86_400.0


def run(args: Namespace) -> None:
    rates = _population(args).rates()
    if not 0 < args.poll_min <= args.poll_max or args.budget < 0 or not 0 < args.days <= 3650:
        raise BadInput("these make no schedule", hint="0 < poll-min <= poll-max, 0 < days <= 3650, budget at least 0")
    theirs = simulate(rates, args.days, Policy("age", SOURCEGRAPH, args.budget / _DAY), args.seed)
    budget = (args.budget or theirs.looks_per_day) / _DAY
    ours = simulate(rates, args.days, Policy(args.rule, Bounds(args.poll_min, args.poll_max), budget), args.seed)
    found = {args.rule: ours, "age/2 within 45 s and 8 h": theirs}
    if in_json(args, *({"rule": name, **msgspec.structs.asdict(freshness)} for name, freshness in found.items())):
        return
    head = ("RULE", "LOOKS/DAY", "EACH", "MEAN LAG", "P50", "P95", "LONGEST UNSEEN")
    print_table(head, [_row(name, freshness, len(rates)) for name, freshness in found.items()])
    if ours.mean and theirs.mean:
        print(f"{ours.commits} commits; {args.rule} sees them {theirs.mean / ours.mean:.2f} times as soon")


def _population(args: Namespace) -> Population:
    if not args.file:
        if not 0 < args.sources <= 1_000_000:
            raise BadInput(f"{args.sources} sources cannot be simulated", hint="1 to 1000000")
        return mix(args.sources)
    try:
        return msgspec.convert(tomllib.loads(read_text(args.file)), Population)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        hint = "[[group]] with sources = 100 and commits_per_day = 0.5, as often as needed"
        raise BadInput(f"{args.file}: is no population: {error}", hint=hint) from error


def _row(name: str, found: Freshness, sources: int) -> tuple[str, ...]:
    lags = (found.mean, found.p50, found.p95, found.longest)
    return (name, f"{found.looks_per_day:.0f}", f"{found.looks_per_day / sources:.2f}", *map(_minutes, lags))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
