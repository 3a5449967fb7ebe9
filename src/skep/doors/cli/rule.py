"""`skep rule …`: what is done on every change, or by the clock."""

import time
from argparse import Namespace

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.files import read_tables
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.parser import Command, json_option
from skep.doors.cli.terminal import ago, clean
from skep.model.rule import Rule, RuleEdit, RuleSpec


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("add", help="make the rules of a file", fill=_fill_add, run="rule:add")
    verbs.add_parser("list", help="all rules", fill=json_option, run="rule:listing")
    verbs.add_parser("show", help="one rule, whole", fill=_fill_named, run="rule:show")
    verbs.add_parser("remove", help="forget a rule; what it made stays", fill=_fill_name, run="rule:remove")
    verbs.add_parser("enable", help="let a rule fire again", fill=_fill_named, run="rule:enable")
    verbs.add_parser("disable", help="keep a rule, but let it not fire", fill=_fill_named, run="rule:disable")
    verbs.add_parser("fire", help="try a rule out", fill=_fill_fire, run="rule:fire")


def _fill_add(parser: Command) -> None:
    parser.add_argument("file", metavar="FILE", help="TOML: one rule, or several [[rule]]; - for standard input")
    json_option(parser)


def _fill_name(parser: Command) -> None:
    parser.add_argument("name", metavar="NAME", help="as `skep rule list` shows it")


def _fill_named(parser: Command) -> None:
    _fill_name(parser)
    json_option(parser)


def _fill_fire(parser: Command) -> None:
    _fill_named(parser)
    parser.add_argument("--source", metavar="REF", default="", help="for the newest commit of this source")


def add(args: Namespace) -> int:
    specs = read(args.file)
    with Client() as client:
        for spec in specs:
            _tell(client.rules.create(spec), "made", args.json)
    return exits.OK


def read(file: str) -> list[RuleSpec]:
    return read_tables(file, "rule", RuleSpec)


def listing(args: Namespace) -> int:
    with Client() as client:
        rules = list(client.rules.list())
    return print_all(
        rules,
        ("NAME", "WHEN", "STATE", "FIRED", "CONTEXT"),
        lambda one, now: (one.spec.name, when(one.spec), _state(one), *_last(one, now)),
        json=args.json,
        none="no rules yet; `skep rule add FILE` makes one",
    )


def when(spec: RuleSpec) -> str:
    if spec.cron:
        return f"cron {spec.cron}"
    about = [spec.source, *(f"label:{label}" for label in spec.labels)]
    return " ".join(
        filter(None, [*about, *(f"ref:{ref}" for ref in spec.refs), *(f"path:{path}" for path in spec.paths)])
    )


def _state(rule: Rule) -> str:
    return ("on" if rule.spec.enabled else "off") + (" (skep.toml)" if rule.origin == "file" else "")


def _last(rule: Rule, now: float) -> tuple[str, str]:
    return (ago(rule.last.at, now), rule.last.context) if rule.last else ("never", "")


def show(args: Namespace) -> int:
    with Client() as client:
        rule = client.rules.show(args.name)
    if args.json:
        print_json(rule)
        return exits.OK
    now = time.time()
    fired, context = _last(rule, now)
    facts = {
        "name": rule.spec.name,
        "when": when(rule.spec),
        "state": _state(rule),
        "made": ago(rule.created_at, now),
        "fired": f"{fired} {context} {rule.last.cause if rule.last else ''}".strip(),
        "first": "for first clones too" if rule.spec.first else "",
        "latest": "cancels what still runs for an older commit" if rule.spec.latest else "",
        "context": msgspec.json.format(msgspec.json.encode(rule.spec.context)).decode(),
    }
    print("\n".join(f"{key:<9}{clean(line)}" for key, text in facts.items() for line in text.splitlines()))
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        client.rules.remove(args.name)
    print(f"removed {clean(args.name)}")
    return exits.OK


def enable(args: Namespace) -> int:
    return _switch(args, True)


def disable(args: Namespace) -> int:
    return _switch(args, False)


def _switch(args: Namespace, enabled: bool) -> int:
    with Client() as client:
        _tell(client.rules.update(args.name, RuleEdit(enabled=enabled)), "on" if enabled else "off", args.json)
    return exits.OK


def fire(args: Namespace) -> int:
    with Client() as client:
        context = client.rules.fire(args.name, args.source)
    if args.json:
        print_json(context)
    else:
        print(f"{context.id}  {clean(context.name)}")
    return exits.OK


def _tell(rule: Rule, what: str, json: bool) -> None:
    if json:
        print_json(rule)
    else:
        print(f"{clean(rule.spec.name)}  {what}")
