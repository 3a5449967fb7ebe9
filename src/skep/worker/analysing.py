"""The kinds of task that find out about what was indexed: `analyse` one batch of a plan, `report` about all of it.

They begin when searches see the content, and their failure is theirs alone: neither index nor source suffer from it.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from skep.errors import NotAllowed
from skep.link.messages import AnswerBody, AskBody
from skep.model.kinds import BatchArguments, ReportArguments, decoded
from skep.model.report import Annotate, Annotated, PutReport
from skep.model.search import Adopted
from skep.model.task import Need, Run, TaskSpec
from skep.worker.builders import Builders, Ended
from skep.worker.doer import Doing, TaskFailed
from skep.worker.jobs import Analyse, Analysed

log = logging.getLogger(__name__)

#: files that may end the process in one job before it is given up
_MOST_DEATHS = 20
Progress = Callable[[int, int], None]


class Analysing:
    def __init__(
        self,
        builders: Builders,
        ask: Callable[[AskBody], Awaitable[AnswerBody]],
        library: Path,
        plan: Callable[[Run], Path],
        progress: Callable[[Run], Progress],
    ) -> None:
        self._builders = builders
        self._ask = ask
        self._library = library
        self._plan = plan
        self._progress = progress

    @property
    def kinds(self) -> dict[str, Doing]:
        return {"analyse": self._analyse, "report": self._report}

    def tasks(self, common: TaskSpec, batches: int, plan: str, epoch: int) -> list[TaskSpec]:
        """What follows the publishing of a large index."""
        some = [
            replace(
                common,
                name=f"analyse-{n}",
                kind="analyse",
                arguments={"plan": plan, "batch": n},
                needs=(Need("publish"),),
            )
            for n in range(batches)
        ]
        needs = tuple(Need(task.name) for task in some)
        return [
            *some,
            replace(common, name="report", kind="report", arguments={"plan": plan, "epoch": epoch}, needs=needs),
        ]

    async def _analyse(self, run: Run) -> dict[str, Any]:
        job = Analyse(str(self._plan(run)), str(self._library), decoded(run.spec, BatchArguments).batch)
        done = await self._study(job, self._progress(run))
        return {"analysed": done.files, "bytes": done.bytes}

    async def _report(self, run: Run) -> dict[str, Any]:
        out, epoch, done = self._plan(run), decoded(run.spec, ReportArguments).epoch, False
        try:
            told = await self.report(out, run.spec.source, epoch, self._progress(run))
            done = True
            return told
        finally:
            if done or run.last:
                await asyncio.to_thread(shutil.rmtree, out, ignore_errors=True)

    async def report(self, out: Path, source: str, epoch: int, progress: Progress) -> dict[str, Any]:
        """Whatever of the source is not known yet is analysed, too."""
        job = Analyse(str(out), str(self._library))
        done = await self._study(job, progress)
        answer = await self._ask(Annotate(None, done.sample))
        if not isinstance(answer, Annotated) or not answer.done:  # its books are lost: tell everything again
            await self._study(replace(job, whole=True), progress)
        assert done.report is not None
        stored = await self._ask(PutReport(source, epoch, done.report))
        if not isinstance(stored, Adopted) or not stored.done:
            raise NotAllowed(f"the report of {source} is no longer wanted")
        return {"analysed": done.files, "functions": done.report.functions}

    async def _study(self, job: Analyse, progress: Progress) -> Analysed:
        done = await self.study(job, progress)
        for book in done.books:
            answer = await self._ask(Annotate(book))
            if not isinstance(answer, Annotated) or not answer.done:
                raise TaskFailed(f"the book {book.id} was not taken in")
        return done

    async def study(self, job: Analyse, progress: Progress) -> Analysed:
        for _ in range(_MOST_DEATHS):
            try:
                done = await self._builders.build(job, progress)
                break
            except Ended:  # what it had in hand is passed over next time
                log.warning("a file ended the process that analysed it", extra={"plan": job.out})
        else:
            raise TaskFailed("too many files end the process that analyses them")
        assert isinstance(done, Analysed)
        return done
