"""Analysis, in a process that builds indexes: each git blob once, whatever sources, branches and paths have it.

A file may drive a grammar mad. So each has a bound of processor time, after which the system ends this process; what
was in hand is noted before, and whoever does the job again only counts its lines. Books are written into the plan, from
where they are shipped, and linked into the library of the worker.
"""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from skep.analysis.model import Annotate, Annotated, PutReport, Report
from skep.analysis.report import File, fold
from skep.base.child_process import Builders, BuildersEnded
from skep.base.clock import SystemClock
from skep.base.errors import NotAllowed
from skep.base.ids import new_id
from skep.indexing.build import Analyse, Analysed, Plan, read_batch, read_plan
from skep.indexing.build import Report as BuildReport
from skep.languages.blob_facts import VERSION, Facts
from skep.languages.blob_facts import analyse as analyse_file
from skep.rpc.messages import AnswerBody, AskBody
from skep.sources.git.documents import Entry as TreeEntry
from skep.sources.git.documents import changed, contents, ignored, is_text
from skep.storage.code_index.analysis_files import Books, Entry, Library, merge, pick, write_book
from skep.storage.code_index.model import Adopted, BookInfo
from skep.tasks.model import Need, Run, TaskSpec
from skep.tasks.task_types import BatchArguments, ReportArguments, decoded
from skep.tasks.worker import Doing, TaskFailed

# The kinds of task that find out about what was indexed: `analyse` one batch of a plan, `report` about all of it.
#
# They begin when searches see the content, and their failure is theirs alone: neither index nor source suffer from it.

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
            except BuildersEnded:  # what it had in hand is passed over next time
                log.warning("a file ended the process that analysed it", extra={"plan": job.out})
        else:
            raise TaskFailed("too many files end the process that analyses them")
        assert isinstance(done, Analysed)
        return done


#: processor seconds for one file; a megabyte of honest code takes half a second
_FILE_SECONDS = 3.0
#: bytes of content that one book tells about
_BOOK_BYTES = 64_000_000
_SAMPLE = 64
#: bytes that a worker keeps of books; the oldest go
_MOST_BYTES = 1 << 30
_to_facts = msgspec.msgpack.Decoder(Facts).decode


def analyse(job: Analyse, report: BuildReport) -> Analysed:
    out = Path(job.out)
    made = read_plan(out)
    library = Library(Path(job.library), VERSION)
    fresh = [entry for n in _batches(job, made) for entry in read_batch(out, n)]
    files = fresh if job.n is not None else _all(made)
    paths = {entry.oid: entry.path for entry in files if entry.size and entry.size <= made.job.rules.max_file}
    new, known = _divide(library.open(), paths)
    changed_now = {entry.oid for entry in fresh}
    wanted = [oid for oid in known if job.whole or oid in changed_now]
    infos = list(_write(out, _known(library.open(), wanted)))
    studying = _Studying(Path(made.job.folder), new, _Hand(out / f"hand-{job.n}"), report)
    for info in _write(out, studying):
        library.take_in(info)
        infos.append(info)
    told = _fold(library.open(), made, files) if job.n is None else None
    _tidy(library)
    sample = tuple(sorted(paths)[:: max(1, len(paths) // _SAMPLE)])
    return Analysed(len(new), studying.bytes, tuple(infos), sample, told)


def _divide(books: Books, paths: dict[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """What nobody has analysed yet, and what is in a book."""
    ids = list(paths)
    known = books.has(np.array(ids, np.bytes_)).tolist() if ids else []
    new = {oid: paths[oid] for oid, is_known in zip(ids, known, strict=True) if not is_known}
    return new, [oid for oid in ids if oid not in new]


def _batches(job: Analyse, made: Plan) -> range:
    """With several batches each had its own analysis; what is left for the last is only what they missed."""
    if job.n is not None:
        return range(job.n, job.n + 1)
    return range(made.batches) if made.batches == 1 else range(0)


def _all(made: Plan) -> list[TreeEntry]:
    mirror = Path(made.job.folder)
    return changed(mirror, None, made.tips, ignored(mirror, made.tips[0].commit, made.job.rules.ignore))[0]


class _Hand:
    """What is being analysed, on disk; and what was when this job ended the process before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.poisoned = set(path.read_text().split()) if path.exists() else set()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = sum(len(oid) + 1 for oid in self.poisoned)
        os.pwrite(self._file, "".join(f"{oid}\n" for oid in self.poisoned).encode(), 0)

    def take(self, oid: str) -> None:
        os.pwrite(self._file, oid.encode() + b"\n", self._end)
        signal.setitimer(signal.ITIMER_VIRTUAL, _FILE_SECONDS)

    def put_down(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        os.ftruncate(self._file, self._end)

    def close(self) -> None:
        os.close(self._file)


class _Studying:
    """Entries of blobs that nobody has analysed yet, as they are made."""

    def __init__(self, folder: Path, paths: dict[str, bytes], hand: _Hand, report: BuildReport) -> None:
        self._folder, self._paths, self._hand, self._report = folder, paths, hand, report
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[Entry, int]]:
        try:
            for done, (oid, content) in enumerate(contents(self._folder, self._paths), start=1):
                text = content if content is not None and is_text(content) else b""
                self.bytes += len(text)
                yield self._entry(oid, text), len(text)
                self._report(done, len(self._paths))
        finally:
            self._hand.close()

    def _entry(self, oid: str, text: bytes) -> Entry:
        if not text:
            return Entry(oid, (), b"")
        if oid in self._hand.poisoned:
            facts, definitions = analyse_file(self._paths[oid], text, deep=False)
        else:
            self._hand.take(oid)
            facts, definitions = analyse_file(self._paths[oid], text)
            self._hand.put_down()
        return Entry(oid, definitions, msgspec.msgpack.encode(facts))


def _known(books: Books, ids: Sequence[str]) -> Iterator[tuple[Entry, int]]:
    for book, _, places in books.find(np.array(ids, np.bytes_)) if ids else ():
        for place in places.tolist():
            entry = book.entry(place)
            yield entry, len(entry.facts)


def _write(out: Path, entries: Iterator[tuple[Entry, int]] | _Studying) -> Iterator[BookInfo]:
    """A book for every so many bytes."""
    some: list[Entry] = []
    weight = 0
    for entry, size in entries:
        some.append(entry)
        weight += size
        if weight >= _BOOK_BYTES:
            yield write_book(out, _new_id(), some, VERSION)
            some, weight = [], 0
    if some:
        yield write_book(out, _new_id(), some, VERSION)


def _new_id() -> str:
    return new_id("bok", SystemClock().now())


def _fold(books: Books, made: Plan, files: list[TreeEntry]) -> Report:
    """Of the default branch."""
    mine = [entry for entry in files if entry.branches & 1]
    facts: dict[str, Facts] = {}
    ids = np.array(list({entry.oid for entry in mine}), np.bytes_)
    for book, asked, places in books.find(ids) if len(ids) else ():
        for oid, place in zip(ids[asked].tolist(), places.tolist(), strict=True):
            if told := book.facts(place):
                facts[oid.decode()] = _to_facts(told)
    return fold((File(one.path, one.size or 0, facts.get(one.oid)) for one in mine), made.tips[0].commit)


def _tidy(library: Library) -> None:
    """Few books are asked faster than many, and there is an end to what is kept."""
    if chosen := pick(library.open().books):
        merge(library, chosen)
    left = _MOST_BYTES
    for book in library.open().books:  # the newest first
        left -= book.weight
        if left < 0:
            book.path.unlink(missing_ok=True)
