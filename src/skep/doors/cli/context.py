"""`skep context …`: tasks that belong together."""

import sys
import time
import tomllib
from argparse import Namespace
from itertools import islice
from pathlib import Path

import msgspec

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.admin import span
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.terminal import ago, clean, table, width
from skep.errors import BadInput, Unavailable
from skep.model.task import Context, ContextSpec

#: tasks that a person is shown of one context
_SHOWN = 1000


def submit(args: Namespace) -> int:
    spec = read(args.file)
    with Client() as client:
        return submitted(client, client.contexts.submit(spec), args)


def submitted(client: Client, context: Context, args: Namespace) -> int:
    if args.wait:
        # whoever stops waiting can go on with the id
        print(f"skep: {context.id} is submitted", file=sys.stderr)
        return _ended(client.contexts.wait(context.id), args.json)
    _tell(context, args.json)
    return exits.OK


def read(file: str) -> ContextSpec:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return msgspec.convert(tomllib.loads(text), ContextSpec)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file} is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise BadInput(f"{file} is no context: {error}", hint="docs/tasks.md lists its fields") from error


def listing(args: Namespace) -> int:
    with Client() as client:
        contexts = client.contexts.list(state=args.state, cause=args.cause, limit=max(1, min(args.limit, 1000)))
        found = list(islice(contexts, args.limit))
    head = ("ID", "STATE", "NAME", "TASKS", "SUBMITTED", "CAUSE")
    return print_all(
        found,
        head,
        lambda one, now: (one.id, one.state, one.name, _counts(one), ago(one.created_at, now), one.cause),
        json=args.json,
    )


def show(args: Namespace) -> int:
    with Client() as client:
        view = client.contexts.show(args.context, limit=_SHOWN)
    if args.json:
        print_json(view)
        return exits.OK
    context, now = view.context, time.time()
    facts = {
        "name": context.name,
        "about": context.description,
        "state": context.state,
        "tasks": _counts(context),
        "cause": context.cause,
        "submitted": ago(context.created_at, now),
        "ended": ago(context.ended_at, now) if context.ended_at else "",
        "properties": ", ".join(f"{name}={value}" for name, value in context.properties.items()),
        "together": "yes" if context.together else "",
    }
    print("\n".join(f"{key:<11}{clean(value)}" for key, value in facts.items() if value))
    rows = [(one.id, one.state, one.name, ", ".join(view.needs.get(one.name, ())), one.reason) for one in view.tasks]
    print()
    print(table(("TASK", "STATE", "NAME", "NEEDS", "REASON"), rows, width(sys.stdout)))
    if context.tasks > len(rows):
        print(f"and {context.tasks - len(rows)} more")
    return exits.OK


def wait(args: Namespace) -> int:
    timeout = None if args.timeout is None else span(args.timeout)
    with Client() as client:
        context = client.contexts.wait(args.context, timeout)
    if context.state == "RUNNING":
        raise Unavailable(f"context {context.id} is still running", hint="wait longer, or `skep context cancel` it")
    return _ended(context, args.json)


def cancel(args: Namespace) -> int:
    with Client() as client:
        _tell(client.contexts.cancel(args.context, args.reason), args.json)
    return exits.OK


def retry(args: Namespace) -> int:
    with Client() as client:
        context = client.contexts.retry(args.context)
        if args.wait:
            return _ended(client.contexts.wait(context.id), args.json)
    _tell(context, args.json)
    return exits.OK


def remove(args: Namespace) -> int:
    with Client() as client:
        client.contexts.remove(args.context)
    print(f"removed {clean(args.context)}")
    return exits.OK


def _ended(context: Context, as_json: bool) -> int:
    _tell(context, as_json)
    return exits.OK if context.state == "FINISHED" else exits.TASK_FAILED


def _counts(context: Context) -> str:
    counts = {"left": context.left, "failed": context.failed}
    return ", ".join([str(context.tasks), *(f"{count} {name}" for name, count in counts.items() if count)])


def _tell(context: Context, as_json: bool) -> None:
    if as_json:
        print_json(context)
    else:
        print(clean(f"{context.id}  {context.state}  {context.name}  {_counts(context)}"), flush=True)
