"""`skep task …`: one command on some worker."""

import codecs
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from itertools import islice
from typing import TextIO

import msgspec

from skep.base.answers import OutputChunk
from skep.base.errors import BadInput, Unavailable
from skep.client import Client
from skep.interfaces import terminal
from skep.interfaces.input_files import read_one
from skep.interfaces.terminal import ago, clean, in_json, print_all, print_facts, print_json, print_table, tell
from skep.status.cli import span
from skep.tasks.model import Context, ContextSpec, Task, TaskSpec

# `skep context …`: tasks that belong together.

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
    return terminal.OK


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
    return terminal.OK


def remove(client: Client, args: Namespace) -> None:
    client.contexts.remove(args.context)
    print(f"removed {clean(args.context)}")


def _ended(args: Namespace, context: Context) -> int:
    _tell(args, context)
    return terminal.OK if context.state == "FINISHED" else terminal.TASK_FAILED


def _counts(context: Context) -> str:
    counts = {"left": context.left, "failed": context.failed}
    return ", ".join([str(context.tasks), *(f"{count} {name}" for name, count in counts.items() if count)])


def _tell(args: Namespace, context: Context) -> None:
    tell(args, context, f"{context.id}  {context.state}  {context.name}  {_counts(context)}")


def run(client: Client, args: Namespace) -> int:
    spec = TaskSpec(
        name=args.name,
        kind=args.kind,
        argv=tuple(args.argv),
        package=args.package,
        command=args.command,
        results=tuple(args.results),
        environment=pairs(args.env, "variable"),
        selector=args.selector,
        source=client.sources.show(args.source).id if args.source else "",
        exclusive=args.exclusive,
        retries=args.retries,
        lost_worker_retries=args.lost_worker_retries,
        at_most_once=args.at_most_once,
        network=args.network,
        priority=args.priority,
        timeout=None if args.timeout is None else span(args.timeout),
    )
    submitted = client.tasks.submit(spec)
    if args.follow:
        print(f"skep: {submitted.task} is submitted", file=sys.stderr)
        _print(client.tasks.follow(submitted.task), args.json)
        return _task_ended(client.tasks.show(submitted.task).task)
    tell(args, submitted, f"{submitted.task}  {submitted.context.id}")
    return terminal.OK


def pairs(given: list[str], what: str) -> dict[str, str]:
    for text in given:
        if not text.partition("=")[0] or "=" not in text:
            raise BadInput(f"'{text}' is no {what}", hint="NAME=VALUE is wanted")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def task_listing(client: Client, args: Namespace) -> None:
    tasks = client.tasks.list(state=args.state, worker=args.worker, limit=max(1, min(args.limit, 1000)))
    print_all(
        args,
        islice(tasks, args.limit),
        ("ID", "STATE", "NAME", "WORKER", "SUBMITTED", "REASON"),
        lambda one, now: (one.id, one.state, one.name, one.worker, ago(one.created_at, now), one.reason),
    )


def task_show(client: Client, args: Namespace) -> None:
    view = client.tasks.show(args.task)
    if in_json(args, view):
        return
    task, spec, now = view.task, msgspec.to_builtins(view.spec), time.time()
    facts = {"context": task.context, "name": task.name, "state": task.state, "reason": task.reason}
    facts |= {"worker": task.worker, "code": "" if task.code is None else str(task.code)}
    facts |= {key: _plain(value) for key, value in spec.items() if key != "name"}
    facts |= {"result": "" if view.result is None else _plain(view.result)}
    print_facts(facts, 12)
    moves = [(one.state, str(one.attempt), one.by, ago(one.at, now), one.reason) for one in view.moves]
    print()
    print_table(("STATE", "ATTEMPT", "BY", "WHEN", "REASON"), moves)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def task_cancel(client: Client, args: Namespace) -> None:
    task = client.tasks.cancel(args.task, args.reason)
    tell(args, task, f"{task.id}  {task.state}  {task.name}")


def output(client: Client, args: Namespace) -> int:
    if args.follow and args.attempt is not None:
        raise BadInput("an earlier attempt cannot be followed", hint="leave out --follow or --attempt")
    if not args.follow:
        _print(client.tasks.output(args.task, attempt=args.attempt, stream=args.stream), args.json)
        return terminal.OK
    _print(client.tasks.follow(args.task, stream=args.stream), args.json)
    return _task_ended(client.tasks.show(args.task).task)


def _task_ended(task: Task) -> int:
    if task.state == "FINISHED":
        return terminal.OK
    print(clean(f"skep: {task.id} is {task.state}: {task.reason}"), file=sys.stderr)
    return terminal.TASK_FAILED


def _print(chunks: Iterable[OutputChunk], as_json: bool) -> None:
    """Each stream to its own; bytes as they are into files and pipes, but nothing raw to a terminal."""
    writers = {"stdout": _Writer(sys.stdout), "stderr": _Writer(sys.stderr)}
    for chunk in chunks:
        if as_json:
            print_json(chunk)
            sys.stdout.flush()
        else:
            writers[chunk.stream].write(chunk.body)


class _Writer:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, body: bytes) -> None:
        if self._stream.isatty():
            self._stream.write("\n".join(clean(line) for line in self._decode(body).split("\n")))
        else:
            self._stream.flush()
            self._stream.buffer.write(body)
        self._stream.flush()
