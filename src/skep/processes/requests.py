"""What members ask over the link, and which room answers."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from skep.analysis.model import Annotate, Annotated, PutReport, ReportRequest
from skep.analysis.service import SourceReports
from skep.base.caller import SYSTEM
from skep.base.clock import Clock
from skep.base.errors import NotAllowed, NotFound, Unavailable
from skep.base.log_lines import Lines
from skep.benchmarks.evaluations import Evaluations
from skep.benchmarks.generator import Generating
from skep.dataone.harvests import Harvests
from skep.dataone.rpc import Bring, HarvestAsk, HarvestRequest
from skep.fleet.members import Fleet
from skep.indexing.updates import Adoption
from skep.mirrors.replication import Moves
from skep.mirrors.sync import Gathering
from skep.packages.api import PackageFrom, PackageWanted
from skep.packages.service import Packages
from skep.results.api import Record
from skep.results.service import Results
from skep.rpc.messages import AnswerBody, AskBody, GitOf
from skep.rpc.transfer import send_blob
from skep.sources.git.process import give
from skep.sources.model import Copied, CopyFrom, CopyRequest, CopyWanted, Held
from skep.sources.service import Sources
from skep.spaces import service
from skep.spaces.api import Nothing, SpaceAsk
from skep.spaces.processes import Journal
from skep.spaces.service import Spaces
from skep.storage.code_index.model import Adopt, Adopted, IndexRequest, Verified, Verify, Where
from skep.tasks.contexts import Calls, Contexts
from skep.tasks.dispatcher import Reports
from skep.tasks.model import Await, Call, Ended, Extend, Renew, Renewed, Reply, Reported, Submit, TaskRequest, Written
from skep.tasks.service import Tasks

_LONGEST_WAIT = 60.0
#: what an index of much is made of
_STEPS = frozenset({"index.batch", "index.publish", "analyse", "report"})


class Requests:
    def __init__(
        self,
        clock: Clock,
        fleet: Fleet,
        sources: Sources,
        adoption: Adoption,
        spaces: Spaces,
        contexts: Contexts,
        tasks: Tasks,
        reports: Reports,
        calls: Calls,
        results: Results,
        packages: Packages,
        journal: Journal,
        moves: Moves,
        gathering: Gathering,
        source_reports: SourceReports,
        harvests: Harvests,
        generating: Generating,
        evaluations: Evaluations,
        lease: float,
    ) -> None:
        self._clock = clock
        self._fleet = fleet
        self._sources = sources
        self._adoption = adoption
        self._spaces = spaces
        self._contexts = contexts
        self._tasks = tasks
        self._reports = reports
        self._calls = calls
        self._results = results
        self._packages = packages
        self._journal = journal
        self._moves = moves
        self._gathering = gathering
        self._tunnels = gathering.tunnels
        self._source_reports = source_reports
        self._harvests = harvests
        self._generating = generating
        self._evaluations = evaluations
        self._lease = lease

    async def answer(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        match body:
            case SpaceAsk():
                return await service.answer(self._spaces, f"{member}/{boot}", body, again)
            case Lines(lines):
                await self._journal.store(member, boot, lines)
                return Nothing()
            case Where() | Verify() | Adopt() | Annotate() | PutReport():
                return await self._index(member, body)
            case Record(task, attempt, first, results, machine):
                await self._results.record(SYSTEM, task, attempt, results, first=first, member=member, machine=machine)
                return Reply()
            case HarvestAsk():
                return await self._harvest(member, body)
            case PackageWanted():
                return await self._package(member, body)
            case CopyWanted() | Copied():
                return await self._copy(member, body)
            case _:
                return await self._task(member, boot, body)

    async def _index(self, member: str, body: IndexRequest | ReportRequest) -> AnswerBody:
        match body:
            case Where(source):
                return self._adoption.stands(await self._own(member, source))
            case Verify(source, tips, digest):
                return Verified(await self._adoption.is_so(await self._own(member, source), tips, digest))
            case Adopt(fence, delta):
                await self._own(member, fence.source)
                async with self._gathering.receiving.delta(member, delta) as here:
                    done = await self._adoption.adopt(fence, here, self._clock.now())
                self._fleet.settled(fence.source)
                return Adopted(done)
            case Annotate(book, known):
                async with self._gathering.receiving.book(member, book) as nearby:
                    return Annotated(await self._adoption.annotate(nearby, known))
            case PutReport(source, epoch, report):
                return Adopted(await self._source_reports.store(await self._own(member, source), epoch, report))

    async def _harvest(self, member: str, body: HarvestRequest) -> AnswerBody:
        await self._own(member, body.source)
        async with self._gathering.receiving.pack(member, body.pack if isinstance(body, Bring) else "") as pack:
            return await self._harvests.answer(body, pack)

    async def _own(self, member: str, source: str) -> Held:
        """Only the holder speaks for a source."""
        held = await self._held(source)
        if await self._fleet.holder(source) != member:
            raise NotAllowed(f"{member} does not hold {source}")
        return held

    async def _copy(self, member: str, body: CopyRequest) -> AnswerBody:
        """Only who holds the source, or is to have a replica, may ask; or anybody could copy any source."""
        holder, replicas = await self._fleet.holder(body.source), await self._fleet.replicas(body.source)
        if member != holder and member not in replicas:
            raise NotAllowed(f"{member} was not asked to copy {body.source}")
        if isinstance(body, Copied):
            if not replicas.get(member, True):
                await self._moves.copied(body.source, member)
            return Nothing()
        held, others = await self._held(body.source), [one for one, complete in replicas.items() if complete]
        return CopyFrom(held, ticket=await self._ticket(member, holder, held, others) if body.open else "")

    async def _package(self, member: str, body: PackageWanted) -> PackageFrom:
        if (await self._calls.doing(member, body.task, body.attempt)).package != body.package:
            raise NotAllowed(f"{member} was not asked to run {body.package}")
        package = await self._packages.show(SYSTEM, body.package)
        give = partial(send_blob, self._packages.blobs, package.blob)
        return PackageFrom(package, self._tunnels.from_here(member, give) if body.open else "")

    async def _manages(self, member: str) -> None:
        if await self._fleet.role(member) != "manager":
            raise NotAllowed(f"{member} is no manager", hint="`skep worker token --role manager` lets one join as such")

    async def _ticket(self, member: str, holder: str | None, held: Held, replicas: Sequence[str]) -> str:
        """Of a tunnel to whoever has it: its holder, or we ourselves. Empty: nobody who can be reached."""
        if holder and holder != member:
            with suppress(Unavailable):  # it is away; perhaps we have a copy
                return await self._tunnels.between(holder, member, GitOf(held.source))
        mirror = self._gathering.mirror(held.source)
        if mirror.exists():
            return self._tunnels.from_here(member, partial(give, mirror))
        for other in (*replicas, *await self._gathering.others(held.source)):
            if other == member:
                continue
            with suppress(Unavailable):
                return await self._tunnels.between(other, member, GitOf(held.source))
        return ""

    async def _held(self, source: str) -> Held:
        held = await self._sources.held(source)
        if held is None:
            raise NotFound(f"the source {source} was removed")
        return held

    async def _task(self, member: str, boot: int, body: TaskRequest) -> AnswerBody:
        match body:
            case Reported(reports):
                stop, begin = await self._reports.report(member, boot, reports)
                return Renewed(self._lease, tuple(stop), tuple(begin))
            case Renew(offer, running):
                await self._fleet.renew(member, offer)
                _, wanted = await self._reports.runs(member)
                return Renewed(self._lease, tuple(hold for hold in running if hold not in wanted))
            case Written(chunks):
                await self._tasks.write(chunks, member)
                return Reply()
            case Call(verb="evaluation.set" | "evaluation.curve"):
                return Reply(await self._evaluations.answer(member, body))
            case Call(verb="benchmark.call"):
                return Reply(await self._generating.answer(member, body))
            case Call():
                return Reply(await self._calls.answer(member, body))
            case Submit(spec, cause, once):
                await self._manages(member)
                if any(task.kind != "index" for task in spec.tasks):
                    raise NotAllowed("a manager asks for indexes, and for nothing else")
                context = await self._contexts.submit(SYSTEM, spec, cause=cause, once=once, internal=True)
                return Ended(context.id, context.state)
            case Extend(id, tasks):
                if not await self._calls.is_part(member, id) or any(task.kind not in _STEPS for task in tasks):
                    raise NotAllowed(f"{member} has no index in hand that these tasks belong to")
                return Reply(await self._contexts.extend(SYSTEM, id, tasks))
            case Await(id, wait):
                await self._manages(member)
                context = await self._contexts.wait(SYSTEM, id, min(wait, _LONGEST_WAIT))
                ended = context.state != "RUNNING"
                return Ended(context.id, context.state, await self._tasks.results(context.id) if ended else {})
