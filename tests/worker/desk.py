"""A coordinator's desk that only remembers, for workers under test."""

import itertools
from collections.abc import Sequence

from skep.analysis.model import Annotate, Annotated, PutReport
from skep.rpc.messages import (
    Ack,
    AnswerBody,
    AskBody,
    Failed,
    Fetched,
    FetchNow,
    Hello,
    Hold,
    Order,
    Outcome,
    Refused,
    Release,
)
from skep.sources.model import Held, Move
from skep.spaces.api import Get, Nothing
from skep.storage.code_index.model import Adopt, Adopted, Delta, Stands, Tip, Where
from skep.tasks.model import Extend, Renewed, Reply, Report, Reported, Run, TaskHold, TaskSpec
from tests.link.quiet import QuietDesk

Body = Hold | Release | FetchNow


class RecordingDesk(QuietDesk):
    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[int, Order] = {}
        self.outcomes_got: dict[int, Outcome] = {}
        self.members: list[str] = []
        self.boots: list[int] = []
        self.acking = True
        #: where the index of a source stands
        self.rules = ""
        self.bases: dict[str, tuple[Tip, ...] | None] = {}
        self.placed: dict[TaskHold, Run] = {}
        self.reports: list[Report] = []
        self.held_back: list[TaskSpec] = []
        self.adopted: list[Adopt] = []
        #: the deltas that come are of no use
        self.stale = False
        self._numbers = itertools.count(1)

    def give(self, body: Body) -> None:
        n = next(self._numbers)
        self.pending[n] = Order(n, body)
        self.bells.ring(["orders"])

    def bodies(self, source: str) -> list[Fetched | Failed]:
        return [outcome.body for _, outcome in sorted(self.outcomes_got.items()) if outcome.source == source]

    def fetched(self, source: str) -> list[Fetched]:
        return [body for body in self.bodies(source) if isinstance(body, Fetched)]

    def index(self, source: str, base: str | None, *, last: bool = False) -> None:
        """Place a task that indexes the source from this commit on."""
        self.bases[source] = (Tip("main", base),) if base else None
        self._place("ctx_1", TaskSpec("plan", "index", source=source, holder=True), last)

    def _place(self, context: str, spec: TaskSpec, last: bool = False) -> None:
        task = f"tsk_{next(self._numbers)}"
        self.placed[task, 1] = Run(task, 1, context, spec.name, spec, last)
        self.bells.ring(["runs"])

    def built(self, source: str) -> list[Delta | None]:
        return [adopt.delta for adopt in self.adopted if adopt.fence.source == source]

    def failed(self, source: str) -> list[Failed]:
        return [body for body in self.bodies(source) if isinstance(body, Failed)]

    def moves(self, source: str, entry: str) -> list[Move]:
        return [move for body in self.fetched(source) for move in body.moves if move.entry == entry]

    async def hello(self, hello: Hello, *, local: bool) -> str | Refused:
        self.members.append(hello.member)
        self.boots.append(hello.boot)
        await self.tell()
        return hello.member

    async def done(self, member: str, orders: Sequence[int]) -> None:
        for n in orders:
            self.pending.pop(n, None)
        await self.tell()

    async def outcomes(self, member: str, outcomes: Sequence[Outcome]) -> list[Ack | Refused]:
        self.outcomes_got.update({outcome.n: outcome for outcome in outcomes})
        await self.tell()
        return [Ack(tuple(outcome.n for outcome in outcomes))] if self.acking else []

    async def orders(self, member: str) -> list[Order]:
        """A worker's: its process may attach as a manager too, and sooner."""
        return [self.pending[n] for n in sorted(self.pending)] if member.startswith("wrk_") else []

    async def runs(self, member: str) -> tuple[list[Run], set[TaskHold]]:
        return list(self.placed.values()), set(self.placed)

    async def ask(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        answer = self._answer(body)
        await self.tell()
        return answer

    def _answer(self, body: AskBody) -> AnswerBody:
        match body:
            case Where(source):
                return Stands(1, self.bases.get(source), self.rules)
            case Adopt():
                self.adopted.append(body)
                self.rules = body.delta.rules if body.delta else ""
                return Adopted(not self.stale)
            case Annotate():
                return Annotated(True)
            case PutReport():
                return Adopted(True)
            case Extend(context, tasks):
                for task in tasks:
                    if not task.needs:
                        self._place(context, task)
                self.held_back += [task for task in tasks if task.needs]
                return Reply(value=True)
            case Reported(reports):
                self._take(reports)
                return Renewed(30.0, ())
            case Get():
                return Nothing()
            case _:
                return Renewed(30.0, ())

    def _take(self, reports: Sequence[Report]) -> None:
        """What needs others is placed when nothing else is left."""
        self.reports += reports
        for report in reports:
            if report.state in ("FINISHED", "FAILED"):
                self.placed.pop((report.task, report.attempt), None)
        if not self.placed and self.held_back:
            self._place("ctx_1", self.held_back.pop())

    async def gone(self, member: str, boot: int, *, down: bool) -> None: ...


def held(source: str, url: str, *, kind: str = "git", epoch: int = 1, number: int = 1) -> Held:
    return Held(source, number, kind, url, epoch)
