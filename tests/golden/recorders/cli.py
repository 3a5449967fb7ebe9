"""The command line: help and arguments of every command, and how the commands of the script end."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator

from skep.cli.parser import FullCommand, build

from ..lines import line, quoted
from ..scene import Ran, Scene
from ..script import Step

#: what they print is about this machine, or about what happens to run
_ONLY_CODE = ("worker show {worker}", "result plot", "config", "log", "simulate")


class _Wide(argparse.HelpFormatter):
    """One line for each argument, however wide the terminal is."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=200, width=100_000)


def record() -> Iterator[str]:
    yield from _commands(build(FullCommand), "")


def _commands(parser: argparse.ArgumentParser, summary: str) -> Iterator[str]:
    yield line(parser.prog, "about", quoted(summary))
    parser.formatter_class = _Wide
    for number, text in enumerate(parser.format_help().splitlines()):
        if shown := " ".join(text.split()):
            yield line(parser.prog, "help", f"{number:03}", quoted(shown))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            yield line(parser.prog, "commands", " ".join(action.choices))
            for name, child in action.choices.items():
                yield from _commands(child, helps[name])
        else:
            yield line(parser.prog, "argument", *_argument(action))


def _argument(action: argparse.Action) -> tuple[str, str]:
    names = " ".join(action.option_strings) or str(action.metavar or action.dest)
    kind = getattr(action.type, "__name__", str(action.type))
    facts = {
        "kind": type(action).__name__.strip("_"),
        "type": kind,
        "nargs": action.nargs,
        "metavar": action.metavar,
        "required": action.required,
        "default": action.default,
        "choices": list(action.choices) if action.choices else None,
        "hidden": action.help == argparse.SUPPRESS,
    }
    return names, " ".join(f"{name}={quoted(value)}" for name, value in facts.items() if value not in (None, False))


def ended(scene: Scene, played: list[tuple[Step, Ran]]) -> Iterator[str]:
    """A number distinguishes repetitions of a command: so a new command does not change the keys of the others."""
    seen: Counter[tuple[str, str]] = Counter()
    for step, ran in played:
        seen[step.command, step.who] += 1
        where = "run", f"skep {step.command}", step.who, str(seen[step.command, step.who])
        yield line(*where, "exit code", str(ran.code))
        yield line(*where, "complaint", quoted(scene.rounded(_complaint(ran.err))[:400]))
        if not step.command.startswith(_ONLY_CODE):
            yield line(*where, "output", _output(scene, ran.out))


def _complaint(text: str) -> str:
    """Without the progress that `--wait` shows."""
    return "\n".join(one for one in text.splitlines() if one.startswith(("skep", "hint: ", "usage: ", "  ")))


def _output(scene: Scene, text: str) -> str:
    """The head of a table, the keys of JSON, or the first line."""
    first = text.splitlines()[0] if text else ""
    if first.startswith("{"):
        return "keys " + " ".join(json.loads(first))
    return quoted(scene.rounded(first)[:400])
