"""The kinds of task that bring the index of a held source to what its mirror holds.

`index` plans; what is small it builds, publishes and analyses itself, for the rest it adds `index.batch` tasks to its
own context, an `index.publish` that needs them all, and what `worker/analysing.py` does then. A task has finished only
when searches see it.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from skep.analysis.worker import Analysing
from skep.base.child_process import NICENESS, Builders, BuildFailed
from skep.base.clock import Clock
from skep.base.errors import NotAllowed, SkepError
from skep.base.ids import new_id
from skep.config.settings import Settings
from skep.indexing.build import Analyse, Batch, Compare, Compared, Finished, Indexed, Job, Planned, fold
from skep.rpc.messages import AnswerBody, AskBody, DeltaOf, Failed
from skep.sources.git.documents import Rules, rules_of, stamp
from skep.sources.git.mirror import folder_of
from skep.sources.model import Failure, Progress
from skep.sources.polling.poller import Poller
from skep.sources.polling.store import Store, Watch
from skep.storage.code_index.analysis_files import SUFFIX
from skep.storage.code_index.model import (
    GIVEN,
    Adopt,
    Adopted,
    BookInfo,
    Delta,
    Fence,
    Given,
    Stands,
    Tip,
    Verified,
    Verify,
    Where,
)
from skep.tasks.model import Extend, Need, Reply, Run, TaskSpec
from skep.tasks.task_types import BatchArguments, IndexArguments, PlanArguments, PublishArguments, decoded
from skep.tasks.worker import Doing, TaskFailed

log = logging.getLogger(__name__)

#: plans whose tasks never came back are removed after so long
_PLAN_SECONDS = 86_400.0
#: tries of each step; the engine makes them
RETRIES, BACKOFF = 4, 5.0


class Indexing:
    def __init__(
        self,
        store: Store,
        poller: Poller,
        settings: Settings,
        data: Path,
        clock: Clock,
        ask: Callable[[AskBody], Awaitable[AnswerBody]],
        on_progress: Callable[[], None],
    ) -> None:
        self._store = store
        self._poller = poller
        self._settings = settings
        self._data = data
        self._deltas = data / "worker" / "deltas"
        self._clock = clock
        self._ask = ask
        self._on_progress = on_progress
        self._builders, self._students = Builders(), Builders(niceness=2 * NICENESS)
        #: one index of a source at a time, or the second would begin where the first began
        self._turns: dict[str, asyncio.Lock] = {}
        self._counts: dict[str, dict[str, tuple[int, int]]] = {}
        #: deltas that are built for others at a time
        self._making = asyncio.Semaphore(settings.index_processes or os.cpu_count() or 1)
        library = data / "worker" / "books"
        self._analysing = Analysing(self._students, ask, library, self._plan, self._report)

    @property
    def kinds(self) -> dict[str, Doing]:
        steps = {"index": self._index, "index.batch": self._batch, "index.publish": self._publish}
        kinds = {kind: self._careful(step) for kind, step in steps.items()}
        return kinds | {kind: self._counted(step) for kind, step in self._analysing.kinds.items()}

    @property
    def progress(self) -> dict[str, Progress]:
        return {
            source: Progress(
                "index", sum(done for done, _ in parts.values()), sum(total for _, total in parts.values())
            )
            for source, parts in self._counts.items()
        }

    async def start(self) -> None:
        """Remove what a killed process left: its tasks are done again, from the plan or from the beginning."""
        self._deltas.mkdir(parents=True, exist_ok=True)
        old = time.time() - _PLAN_SECONDS
        for folder in self._deltas.iterdir():
            if not (folder / "plan").exists() or folder.stat().st_mtime < old:
                await self._remove(folder)

    async def close(self) -> None:
        await self._builders.close()
        await self._students.close()

    def _careful(self, step: Callable[[Run, Watch], Awaitable[Any]]) -> Doing:
        async def do(run: Run) -> Any:
            watch = await self._poller.find(run.spec.source)
            if watch is None or not watch.last_looked:
                raise TaskFailed(f"{run.spec.source} is not mirrored here yet")
            try:
                return await step(run, watch)
            except SkepError as error:
                if run.last:
                    await self._give_up(await self._poller.find(watch.source) or watch, error.message)
                raise

        return self._counted(do)

    def _counted(self, do: Doing) -> Doing:
        async def counted(run: Run) -> Any:
            source = run.spec.source
            try:
                return await do(run)
            finally:
                self._counts.get(source, {}).pop(run.task, None)
                if not self._counts.get(source):
                    self._counts.pop(source, None)
                self._on_progress()

        return counted

    async def _index(self, run: Run, watch: Watch) -> dict[str, Any]:
        """What is found out about small things is part of the same task, but nobody who searches waits for it."""
        out = self._deltas / new_id("dlt", self._clock.now())
        kept = False
        try:
            async with self._turns.setdefault(watch.source, asyncio.Lock()):
                stands = await self._ask(Where(watch.source))
                if not isinstance(stands, Stands):
                    raise TaskFailed(f"{watch.source} is no longer wanted")
                # the upstream was so before the mirror is read: the index is at least that fresh
                fence = Fence(watch.source, stands.epoch, watch.last_looked)
                job = self._job(watch, await self._base(run, stands), out)
                answer = await self._builders.build(job, self._report(run))
                if isinstance(answer, Planned):
                    kept = await self._extend(run, self._steps(run, out, answer.batches, fence))
                    return {"batches": answer.batches}
                delta = answer.delta if isinstance(answer, Finished) else None
                told = await self._adopt(fence, delta)
            return told | (await self._find_out(run, fence, out) if delta else {})
        finally:
            if not kept:
                await self._remove(out)

    def _job(self, watch: Watch, base: tuple[Tip, ...] | None, out: Path) -> Job:
        return Job(
            watch.source,
            watch.held.number,
            self._mirror(watch.source),
            base,
            self._branches(watch),
            self._rules,
            str(out),
            self._settings.index_batch,
        )

    async def _find_out(self, run: Run, fence: Fence, out: Path) -> dict[str, Any]:
        """The index is published: what fails here is told, and that is all. Another holder does it again."""
        if not self._settings.index_analyse:
            return {}
        try:
            return await self._analysing.report(out, fence.source, fence.epoch, self._report(run))
        except SkepError as error:
            watch = await self._poller.find(fence.source)
            if isinstance(error, NotAllowed) or watch is None or watch.held.epoch != fence.epoch:
                raise
            log.warning("a source was not analysed", extra={"source": fence.source, "reason": error.message})
            return {"unanalysed": error.message}

    @asynccontextmanager
    async def made(self, watch: Watch, what: DeltaOf) -> AsyncIterator[Path]:
        """A folder for an aggregator that asks: the delta from where its index stands, what it says, and its books."""
        out, quiet = self._deltas / new_id("dlt", self._clock.now()), _ignore
        async with self._making:
            try:
                job = self._job(watch, await self._base_of(what), out)
                answer = await self._builders.build(job, quiet)
                batches = answer.batches if isinstance(answer, Planned) else 1
                for n in range(batches) if batches > 1 else ():
                    await self._builders.build(Batch(str(out), n), quiet)
                empty = isinstance(answer, Finished) and answer.delta is None
                delta = None if empty else await asyncio.to_thread(fold, out)
                books: list[BookInfo] = []
                for n in range(batches) if delta and self._settings.index_analyse else ():
                    library = str(self._deltas.parent / "books")
                    books += (await self._analysing.study(Analyse(str(out), library, n, whole=True), quiet)).books
                out.mkdir(exist_ok=True)
                for path in (one for one in out.iterdir() if one.is_file() and one.suffix != SUFFIX):
                    path.unlink()
                (out / GIVEN).write_bytes(msgspec.msgpack.encode(Given(delta, watch.last_looked, tuple(books))))
                yield out
            finally:
                await self._remove(out)

    async def _base(self, run: Run, stands: Stands) -> tuple[Tip, ...] | None:
        """What the new index may be built upon."""
        way, source = decoded(run.spec, IndexArguments).way, run.spec.source
        if way == "whole" or stands.base is None or stands.rules != stamp(self._rules):
            return None
        if way == "verify":
            digest = await self._digest(source, stands.base, self._report(run))
            verified = await self._ask(Verify(source, stands.base, digest))
            if isinstance(verified, Verified) and not verified.same:
                log.warning("the index differs from the mirror and is made anew", extra={"source": source})
                return None
        return stands.base

    async def _base_of(self, what: DeltaOf) -> tuple[Tip, ...] | None:
        """The same, of an index that an aggregator has by itself."""
        if what.base is None or what.rules != stamp(self._rules):
            return None
        if what.digest and what.digest != await self._digest(what.source, what.base, _ignore):
            log.warning("the index of an aggregator differs from the mirror", extra={"source": what.source})
            return None
        return what.base

    async def _digest(self, source: str, tips: tuple[Tip, ...], report: Callable[[int, int], None]) -> str:
        """Of what an index should hold at these tips. Empty: the mirror does not know them any more."""
        try:
            compared = await self._builders.build(Compare(self._mirror(source), tips, self._rules.ignore), report)
        except BuildFailed:
            return ""
        assert isinstance(compared, Compared)
        return compared.digest

    def _branches(self, watch: Watch) -> tuple[str, ...]:
        said = watch.held.settings.branches
        return self._settings.index_branches if said is None else said

    @property
    def _rules(self) -> Rules:
        return rules_of(self._settings)

    def _mirror(self, source: str) -> str:
        return str(folder_of(self._data, source))

    def _steps(self, run: Run, out: Path, batches: int, fence: Fence) -> list[TaskSpec]:
        common, where = _common(run), {"plan": out.name}
        tasks = [
            replace(common, name=f"batch-{n}", kind="index.batch", arguments={**where, "batch": n})
            for n in range(batches)
        ]
        publish = replace(
            common,
            name="publish",
            kind="index.publish",
            arguments={**where, "epoch": fence.epoch, "fetched_at": fence.fetched_at},
            needs=tuple(Need(task.name) for task in tasks),
        )
        more = self._analysing.tasks(common, batches, out.name, fence.epoch) if self._settings.index_analyse else []
        return [*tasks, publish, *more]

    async def _extend(self, run: Run, tasks: Sequence[TaskSpec]) -> bool:
        """False: an earlier try of this task has done so already."""
        answer = await self._ask(Extend(run.context, tuple(tasks)))
        return isinstance(answer, Reply) and bool(answer.value)

    async def _batch(self, run: Run, watch: Watch) -> dict[str, Any]:
        batch = Batch(str(self._plan(run)), decoded(run.spec, BatchArguments).batch)
        answer = await self._builders.build(batch, self._report(run))
        assert isinstance(answer, Indexed)
        return {"documents": answer.documents, "bytes": answer.bytes}

    async def _publish(self, run: Run, watch: Watch) -> dict[str, Any]:
        out, given = self._plan(run), decoded(run.spec, PublishArguments)
        delta = await asyncio.to_thread(fold, out)
        fence = Fence(watch.source, given.epoch, given.fetched_at)
        told = await self._adopt(fence, delta)
        if not self._settings.index_analyse:
            await self._remove(out)
        return told

    async def _adopt(self, fence: Fence, delta: Delta | None) -> dict[str, Any]:
        answer = await self._ask(Adopt(fence, delta))
        if not isinstance(answer, Adopted) or not answer.done:
            raise TaskFailed("the index has moved on meanwhile")
        if delta is None:
            return {"commit": None}
        shards = delta.shards
        return {"commit": delta.commit, "documents": sum(s.documents for s in shards), "gone": len(delta.gone)}

    async def _give_up(self, watch: Watch, reason: str) -> None:
        """The source is failing; the next good look tells that it is current again."""
        failure = Failure("internal", f"its index cannot be built: {reason}")
        watch.failure, watch.failures = failure.kind, max(1, watch.failures)
        await self._store.tell(watch, Failed(failure, watch.failures), at=self._clock.now())

    def _plan(self, run: Run) -> Path:
        """Its id has passed its pattern: nothing else is joined to this path."""
        return self._deltas / decoded(run.spec, PlanArguments).plan

    def _report(self, run: Run) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            self._counts.setdefault(run.spec.source, {})[run.task] = (done, total)
            self._on_progress()

        return report

    async def _remove(self, folder: Path) -> None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _ignore(done: int, total: int) -> None:
    """Nobody watches what is made for others."""


def _common(run: Run) -> TaskSpec:
    """What the tasks that follow this one are like."""
    return TaskSpec(source=run.spec.source, holder=True, retries=RETRIES, backoff=BACKOFF)
