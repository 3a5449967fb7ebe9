"""`skep rule …`: what is done on every change, or by the clock."""

import time
from argparse import Namespace

import msgspec

from skep.client import Client
from skep.interfaces.input_files import read_tables
from skep.interfaces.terminal import ago, clean, in_json, print_all, print_facts, tell
from skep.rules.api import Rule, RuleEdit, RuleSpec


def add(client: Client, args: Namespace) -> None:
    for spec in read(args.file):
        _tell(args, client.rules.create(spec), "made")


def read(file: str) -> list[RuleSpec]:
    return read_tables(file, "rule", RuleSpec)


def listing(client: Client, args: Namespace) -> None:
    print_all(
        args,
        client.rules.list(),
        ("NAME", "WHEN", "STATE", "FIRED", "CONTEXT"),
        lambda one, now: (one.spec.name, when(one.spec), _state(one), *_last(one, now)),
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


def show(client: Client, args: Namespace) -> None:
    rule = client.rules.show(args.name)
    if in_json(args, rule):
        return
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
    }
    print_facts(facts, 9)
    for line in msgspec.json.format(msgspec.json.encode(rule.spec.context)).decode().splitlines():
        print_facts({"context": line}, 9)


def remove(client: Client, args: Namespace) -> None:
    client.rules.remove(args.name)
    print(f"removed {clean(args.name)}")


def enable(client: Client, args: Namespace) -> None:
    _tell(args, client.rules.update(args.name, RuleEdit(enabled=True)), "on")


def disable(client: Client, args: Namespace) -> None:
    _tell(args, client.rules.update(args.name, RuleEdit(enabled=False)), "off")


def fire(client: Client, args: Namespace) -> None:
    context = client.rules.fire(args.name, args.source)
    tell(args, context, f"{context.id}  {context.name}")


def _tell(args: Namespace, rule: Rule, what: str) -> None:
    tell(args, rule, f"{rule.spec.name}  {what}")
