"""The command `skep`. Commands are named by text and imported when chosen, so that none pays for another."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from skep.doors.cli import exits
from skep.doors.cli.parser import build
from skep.doors.cli.query import guarded
from skep.doors.cli.terminal import clean
from skep.errors import BadInput, SkepError

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
        return exits.code_of(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # whoever read us has seen enough; without this the interpreter complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    return code


def _run(args: Namespace) -> int:
    module, function = args.run.split(":")
    run = getattr(import_module(f"skep.doors.cli.{module}"), function)
    if not args.asks:
        return run(args) or exits.OK
    from skep.client import Client

    try:
        with Client() as client:
            return run(client, args) or exits.OK
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
