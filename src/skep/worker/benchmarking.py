"""The kind `benchmark`: generates contexts as long as its benchmark lives. All it knows, the coordinator told it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.benchmarks.checking import ends
from skep.benchmarks.choosing import Wanted, choose, key_of
from skep.benchmarks.declared import generated
from skep.errors import NotFound
from skep.link.messages import AnswerBody, AskBody
from skep.model.benchmark import Commit, Turn, Want
from skep.model.task import Call, Reply, Run
from skep.sources.git.history import history

log = logging.getLogger(__name__)

_WAIT = 60.0
Ask = Callable[[AskBody], Awaitable[AnswerBody]]


class Benchmarking:
    def __init__(self, ask: Ask, mirror: Callable[[str], Path], child: Callable[[Run, str], Awaitable[Any]]) -> None:
        self._ask = ask
        self._mirror = mirror
        #: runs a benchmark's own code
        self._child = child

    async def generate(self, run: Run) -> Any:
        """The kind of task. It ends when there is nothing more to measure, ever."""
        told: dict[str, Any] = {}
        known = _Histories(self._mirror)
        while True:
            turn = msgspec.convert(await self._call(run, "next", told), Turn)
            if turn.spec.code:
                return await self._child(run, turn.spec.code)
            told = {"stamp": turn.stamp}
            histories = await known.of(turn)
            if not turn.free or not any(histories.values()):
                continue
            wanted = [await known.wanted(turn, want) for want in turn.wants]
            choice, narrow, fulfilled = choose(turn.spec, histories, turn.generated, turn.spans, wanted)
            told |= {"narrow": narrow, "fulfilled": fulfilled, "bisect": _bisects(turn, wanted[:fulfilled])}
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


def _bisects(turn: Turn, fulfilled: Sequence[Wanted]) -> list[list[str]]:
    """Ranges both ends of which are measured: is there a step between them?"""
    return [
        [one.ref, one.commits[0].id, one.commits[-1].id]
        for one in fulfilled
        if one.want.bisect and len(one.commits) > 1 and key_of(one.ref, one.commits[0].id) in turn.generated
    ]
