"""`skep context …`: tasks that belong together."""

import sys
import time
from argparse import Namespace
from itertools import islice

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.admin import span
from skep.doors.cli.files import read_one
from skep.doors.cli.listing import in_json, print_all, print_facts, print_table, tell
from skep.doors.cli.terminal import ago, clean
from skep.errors import Unavailable
from skep.model.task import Context, ContextSpec

#: tasks that a person is shown of one context
_SHOWN = 1000


def submit(client: Client, args: Namespace) -> int:
    spec = read_one(args.file, ContextSpec, "docs/tasks.md lists its fields")
    return submitted(client, client.contexts.submit(spec), args)


def submitted(client: Client, context: Context, args: Namespace) -> int:
    if args.wait:
        # whoever stops waiting can go on with the id
        print(f"skep: {context.id} is submitted", file=sys.stderr)
        return _ended(args, client.contexts.wait(context.id))
    _tell(args, context)
    return exits.OK


def listing(client: Client, args: Namespace) -> None:
    contexts = client.contexts.list(state=args.state, cause=args.cause, limit=max(1, min(args.limit, 1000)))
    print_all(
        args,
        islice(contexts, args.limit),
        ("ID", "STATE", "NAME", "TASKS", "SUBMITTED", "CAUSE"),
        lambda one, now: (one.id, one.state, one.name, _counts(one), ago(one.created_at, now), one.cause),
    )


def show(client: Client, args: Namespace) -> None:
    view = client.contexts.show(args.context, limit=_SHOWN)
    if in_json(args, view):
        return
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
    print_facts(facts, 11)
    rows = [(one.id, one.state, one.name, ", ".join(view.needs.get(one.name, ())), one.reason) for one in view.tasks]
    print()
    print_table(("TASK", "STATE", "NAME", "NEEDS", "REASON"), rows)
    if context.tasks > len(rows):
        print(f"and {context.tasks - len(rows)} more")


def wait(client: Client, args: Namespace) -> int:
    timeout = None if args.timeout is None else span(args.timeout)
    context = client.contexts.wait(args.context, timeout)
    if context.state == "RUNNING":
        raise Unavailable(f"context {context.id} is still running", hint="wait longer, or `skep context cancel` it")
    return _ended(args, context)


def cancel(client: Client, args: Namespace) -> None:
    _tell(args, client.contexts.cancel(args.context, args.reason))


def retry(client: Client, args: Namespace) -> int:
    context = client.contexts.retry(args.context)
    if args.wait:
        return _ended(args, client.contexts.wait(context.id))
    _tell(args, context)
    return exits.OK


def remove(client: Client, args: Namespace) -> None:
    client.contexts.remove(args.context)
    print(f"removed {clean(args.context)}")


def _ended(args: Namespace, context: Context) -> int:
    _tell(args, context)
    return exits.OK if context.state == "FINISHED" else exits.TASK_FAILED


def _counts(context: Context) -> str:
    counts = {"left": context.left, "failed": context.failed}
    return ", ".join([str(context.tasks), *(f"{count} {name}" for name, count in counts.items() if count)])


def _tell(args: Namespace, context: Context) -> None:
    tell(args, context, f"{context.id}  {context.state}  {context.name}  {_counts(context)}")
