"""The kind `benchmark`: generates contexts as long as its benchmark lives. All it knows, the coordinator told it."""

import asyncio
import base64
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from skep.base.errors import NotFound
from skep.benchmarks.api import Commit, Turn, Want
from skep.benchmarks.change_points import Curve
from skep.benchmarks.commit_selection import Wanted, choose, generated, key_of
from skep.benchmarks.evaluations import MIMES, evaluate
from skep.benchmarks.service import ends
from skep.config.settings import Settings
from skep.rpc.messages import AnswerBody, AskBody
from skep.runtime.commands import allowed, refused_variables
from skep.sources.git.browse import history
from skep.tasks.model import Call, Command, Reply, Run, TaskSpec
from skep.tasks.task_types import EvaluateArguments, decoded
from skep.tasks.worker import TaskFailed

log = logging.getLogger(__name__)

_WAIT = 60.0
Ask = Callable[[AskBody], Awaitable[AnswerBody]]


class Benchmarking:
    def __init__(self, ask: Ask, mirror: Callable[[str], Path], child: Callable[[Run, str], Awaitable[Any]]) -> None:
        self._ask = ask
        self._mirror = mirror
        #: runs a benchmark's own code
        self._child = child
        #: how many of these run; they mostly wait, and take no place of a command
        self.children = 0

    async def generate(self, run: Run) -> Any:
        """The kind of task. It ends when there is nothing more to measure, ever."""
        told: dict[str, Any] = {}
        known = _Histories(self._mirror)
        while True:
            turn = msgspec.convert(await self._call(run, "next", told), Turn)
            if turn.spec.code:
                self.children += 1
                try:
                    return await self._child(run, turn.spec.code)
                finally:
                    self.children -= 1
            told = {"stamp": turn.stamp}
            histories = await known.of(turn)
            if not turn.free or not any(histories.values()):
                continue
            wanted = [await known.wanted(turn, want) for want in turn.wants]
            choice, narrow, fulfilled = choose(turn.spec, histories, turn.generated, turn.spans, wanted)
            over = list(takewhile(partial(_is_over, turn), wanted[:fulfilled]))
            told |= {
                "narrow": narrow,
                "fulfilled": [msgspec.to_builtins(one.want) for one in over],
                "bisect": _bisects(over),
            }
            if choice is not None:
                asked = generated(turn.spec, turn.source, choice)
                await self._call(run, "submit", msgspec.to_builtins(asked))
            elif (
                turn.spec.mode == "range" and not narrow and not fulfilled and "RUNNING" not in turn.generated.values()
            ):
                return None

    async def _call(self, run: Run, name: str, body: Any) -> Any:
        reply = await self._ask(Call(run.task, run.attempt, "benchmark.call", name, body, _WAIT))
        assert isinstance(reply, Reply)
        return reply.value


async def evaluated(run: Run, ask: Ask) -> Any:
    """The kind `evaluate`: a built-in evaluator draws a series of a benchmark."""
    given = decoded(run.spec, EvaluateArguments)
    name, plot = given.benchmark, given.plot
    found = await ask(Call(run.task, run.attempt, "evaluation.curve", name, msgspec.to_builtins(given)))
    curves = msgspec.convert(found.value if isinstance(found, Reply) else [], list[Curve])
    if not curves:
        raise NotFound(f"benchmark {name!r} has measured nothing yet")
    mime, body = await asyncio.to_thread(evaluate, plot, curves[0], commit=given.commit)
    file = {"mime": mime, "body": base64.b64encode(body).decode()}
    made = await ask(Call(run.task, run.attempt, "evaluation.set", f"{plot}.{MIMES[mime]}", file))
    return made.value if isinstance(made, Reply) else None


class _Histories:
    """Of refs, read again only when they have moved."""

    def __init__(self, mirror: Callable[[str], Path]) -> None:
        self._mirror = mirror
        self._known: dict[tuple[str, str], list[Commit]] = {}

    async def of(self, turn: Turn) -> dict[str, list[Commit]]:
        """Ref -> commits; refs that are not there yet are left out."""
        spec, tips = turn.spec, turn.tips
        if spec.mode == "range":
            old, new = ends(spec.range)
            return {_ref(turn): await self._read(turn, new, old, str(sorted(tips.items())))}
        refs = spec.refs or (turn.default_branch,)
        return {ref: await self._read(turn, f"refs/heads/{ref}", "", tips[ref]) for ref in refs if ref in tips}

    async def _read(self, turn: Turn, tip: str, after: str, stamp: str) -> list[Commit]:
        if (tip, stamp) not in self._known:
            self._known = {key: one for key, one in self._known.items() if key[0] != tip}
            self._known[tip, stamp] = await history(self._mirror(turn.source), tip, after)
        return self._known[tip, stamp]

    async def wanted(self, turn: Turn, want: Want) -> Wanted:
        old, new = ends(want.revs) if ".." in want.revs else ("", want.revs)
        try:
            commits = await history(self._mirror(turn.source), new, old)
        except NotFound as error:
            log.warning("a wish cannot be fulfilled", extra={"benchmark": turn.benchmark, "reason": error.message})
            commits = []
        return Wanted(want, _ref(turn), commits if old else commits[-1:])


def _ref(turn: Turn) -> str:
    return turn.spec.refs[0] if turn.spec.refs else turn.default_branch


def _is_over(turn: Turn, one: Wanted) -> bool:
    keys = (key_of(one.ref, commit.id, one.want.round) for commit in one.commits)
    return all(turn.generated.get(key) != "RUNNING" for key in keys)


def _bisects(fulfilled: Sequence[Wanted]) -> list[list[str]]:
    """Ranges both ends of which are measured, as far as they can be: is there a step between them?"""
    return [
        [one.ref, *([one.commits[0].id, one.commits[-1].id] if one.commits else ends(one.want.revs))]
        for one in fulfilled
        if one.want.bisect
    ]


# What a command task runs: its own program; or one of ours that measures with it, or runs a benchmark's own code.
#
# Our own programs start isolated from variables and folders (`python -I`) and with nothing of what the task sets: its
# variables are data for them, which they hand to the programs that they start.

_OURS = (sys.executable, "-I", "-c")


def meant(command: Command, run: Run, code: str, *, settings: Settings, mirror: Callable[[str], Path]) -> Command:
    """What our own programs run has to be allowed as if it were run directly."""
    job = run.spec.arguments.get("measure")
    program = run.spec.package.rpartition("/")[0] or "".join(command.argv[:1])
    if code:
        _check(("python3",), settings)
        _check_variables(command, ("python3",), settings)
        main, given = "skep.benchmark", {"SKEP_CODE": code}
    elif job is not None:
        build = job.get("build", ())
        _check(build, settings)
        _check_variables(command, (program, *build[:1]), settings)
        packed = msgspec.json.encode({**job, "command": command.argv}).decode()
        main, given = "skep.benchmarks.measure", {"SKEP_MEASURE": packed, "SKEP_MIRROR": str(mirror(run.spec.source))}
        command = msgspec.structs.replace(command, readable=(given["SKEP_MIRROR"],))
    else:
        _check_variables(command, (program,), settings)
        return command
    given["SKEP_VARIABLES"] = msgspec.json.encode(command.environment).decode()
    argv = (*_OURS, f"import sys; from {main} import main; sys.exit(main())")
    return msgspec.structs.replace(command, argv=argv, environment=given)


def _check(argv: Sequence[str], settings: Settings) -> None:
    if argv and (reason := allowed(TaskSpec(argv=tuple(argv)), settings)):
        raise TaskFailed(reason)


def _check_variables(command: Command, programs: Sequence[str], settings: Settings) -> None:
    if reason := refused_variables(command.environment, programs, settings):
        raise TaskFailed(reason)
