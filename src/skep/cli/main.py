"""The command `skep`. Commands are named by text and imported when chosen, so that none pays for another."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from skep.base.errors import BadInput, SkepError
from skep.cli.parser import build
from skep.interfaces import terminal
from skep.interfaces.terminal import clean
from skep.search.cli import guarded

#: where the modules stand that are named in tables
_MODULES = {
    "admin": "skep.status.cli",
    "autoscale": "skep.fleet.cli",
    "benchmark": "skep.benchmarks.cli",
    "ca": "skep.cli.local",
    "commands": "skep.cli.commands",
    "completion": "skep.cli.local",
    "context": "skep.tasks.cli",
    "credential": "skep.sources.cli",
    "dataone": "skep.dataone.cli",
    "exits": "skep.interfaces.terminal",
    "files": "skep.interfaces.input_files",
    "listing": "skep.interfaces.terminal",
    "lists": "skep.sources.cli",
    "log": "skep.spaces.processes",
    "main": "skep.cli.main",
    "member": "skep.fleet.cli",
    "package": "skep.packages.cli",
    "parser": "skep.cli.parser",
    "plot": "skep.interfaces.terminal",
    "query": "skep.search.cli",
    "reference": "skep.cli.local",
    "report": "skep.analysis.service",
    "result": "skep.results.cli",
    "rule": "skep.rules.cli",
    "search": "skep.search.cli",
    "server": "skep.cli.local",
    "settings": "skep.cli.local",
    "simulate": "skep.sources.polling.simulate",
    "source": "skep.sources.cli",
    "space": "skep.spaces.cli",
    "task": "skep.tasks.cli",
    "terminal": "skep.interfaces.terminal",
    "token": "skep.access.cli",
    "topic": "skep.topics.cli",
    "worker": "skep.fleet.cli",
}


#: functions that are called otherwise in their modules
_NAMES = {
    ("lists", "listing"): "lists_listing",
    ("lists", "remove"): "lists_remove",
    ("settings", "show"): "settings_show",
    ("source", "add"): "source_add",
    ("source", "listing"): "source_listing",
    ("source", "remove"): "source_remove",
    ("source", "show"): "source_show",
    ("task", "cancel"): "task_cancel",
    ("task", "listing"): "task_listing",
    ("task", "show"): "task_show",
}


#: characters of a query shown before and after the place that is wrong
_AROUND = 100


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    args = build().parse_args(guarded(sys.argv[1:] if argv is None else argv))
    try:
        code = _run(args)
        sys.stdout.flush()
    except SkepError as error:
        complain(error, " ".join(getattr(args, "query", ())) or getattr(args, "selector", ""))
        return terminal.code_of(error)
    except KeyboardInterrupt:
        return terminal.INTERRUPTED
    except BrokenPipeError:
        # whoever read us has seen enough; without this the interpreter complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return terminal.OK
    return code


def _run(args: Namespace) -> int:
    module, function = args.run.split(":")
    run = getattr(import_module(_MODULES[module]), _NAMES.get((module, function), function))
    if not args.asks:
        return run(args) or terminal.OK
    from skep.client import Client

    try:
        with Client() as client:
            return run(client, args) or terminal.OK
    except UnicodeEncodeError as error:  # something to be sent: what is printed is escaped
        raise BadInput(f"this is not UTF-8: {error.object[error.start :][:_AROUND]}") from error


def complain(error: SkepError, text: str = "") -> None:
    """`text` is what the error's column points into."""
    lines = [f"skep: {error.message}"]
    if error.column and text:
        start = max(0, error.column - _AROUND)
        lines += [f"  {text[start : start + 2 * _AROUND]}", "  " + " " * (error.column - 1 - start) + "^"]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    print("\n".join(clean(line) for line in lines), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
