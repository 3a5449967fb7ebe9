"""Puts a serving process together: engines by URL, rooms over them, one core in front."""

import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from skep.access.service import Access
from skep.benchmarks.curves import Curves
from skep.benchmarks.evaluations import Evaluations
from skep.benchmarks.finding import Finding
from skep.benchmarks.generating import Generating
from skep.benchmarks.notices import Notices
from skep.benchmarks.resubmitting import Resubmitting
from skep.benchmarks.service import Benchmarks
from skep.clock import Clock
from skep.config import Settings
from skep.core import Core
from skep.dataone.formats import Formats
from skep.dataone.harvests import Harvests
from skep.dataone.index import RecordIndex
from skep.dataone.kind import DataoneAddresses
from skep.dataone.nodes import KIND, Nodes
from skep.dataone.replication import Replication
from skep.dataone.service import DataOne
from skep.dataone.store import Store
from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database
from skep.engines.db.time import SharedClock
from skep.engines.index.base import Searcher
from skep.engines.log.base import Log, TxLog
from skep.engines.open import Kind, find
from skep.engines.records.base import Records
from skep.fleet import openings
from skep.fleet.interest import Interest
from skep.fleet.moves import Moves
from skep.fleet.servers import Place, Servers, keep_id
from skep.fleet.service import Fleet
from skep.fleet.shares import Shares
from skep.gather.manifest import Manifests
from skep.gather.service import Gather
from skep.link.join import ca_of
from skep.link.tunnels import Tunnels
from skep.model.benchmark import BenchmarkSpec
from skep.model.caller import SYSTEM
from skep.model.credential import CredentialSpec
from skep.model.ids import new_id
from skep.model.rule import RuleSpec
from skep.packages.service import Packages
from skep.results.service import Results
from skep.roles.desk import Desk
from skep.roles.gathering import Gathering
from skep.roles.moving import Moving
from skep.roles.receiving import Receiving
from skep.roles.requests import Requests
from skep.search.adoption import Adoption
from skep.search.report_records import ReportRecords
from skep.search.reports import SourceReports
from skep.search.saved import Saved
from skep.search.service import Search
from skep.search.watching import Watching
from skep.sources.base import Addresses
from skep.sources.bulk import Bulk
from skep.sources.credentials import Credentials
from skep.sources.git.addresses import GitAddresses
from skep.sources.git.guard import Guard as HostGuard
from skep.sources.git.http import Http
from skep.sources.git.lsrefs import ca_bundle
from skep.sources.hooks import Hooks
from skep.sources.intake import Intake
from skep.sources.lists.apply import Apply
from skep.sources.lists.asking import Asking
from skep.sources.lists.follow import Follower
from skep.sources.lists.service import Lists
from skep.sources.service import Sources
from skep.spaces.journal import Journal
from skep.spaces.service import Spaces
from skep.spaces.statuses import Statuses
from skep.status import StatusView
from skep.tasks import archive, news
from skep.tasks.calls import Calls
from skep.tasks.contexts import Contexts
from skep.tasks.dispatcher import Dispatcher
from skep.tasks.owners import BEAT_SECONDS, Owners
from skep.tasks.placing import Placer
from skep.tasks.reports import Reports
from skep.tasks.rules import Rules
from skep.tasks.service import Tasks
from skep.tasks.triggers import Triggers
from skep.tasks.workers import Workers
from skep.topics import relay
from skep.topics.groups import Groups
from skep.topics.queue import Queue
from skep.topics.retention import sweep_for_ever
from skep.topics.service import Topics

#: bytes of one page of a forge's API
_LARGEST_LISTING = 16 << 20

Loop = Callable[[], Coroutine[Any, Any, None]]


class Rooms(msgspec.Struct, frozen=True):
    #: the id of this process
    me: str
    core: Core
    desk: Desk
    adoption: Adoption
    searcher: Searcher
    tunnels: Tunnels
    #: what runs for as long as the process does, by its roles
    loops: list[Loop]


@asynccontextmanager
async def open_rooms(
    settings: Settings,
    clock: Clock,
    worker_token: str,
    file_rules: Sequence[RuleSpec] = (),
    file_credentials: Sequence[CredentialSpec] = (),
    file_benchmarks: Sequence[BenchmarkSpec] = (),
) -> AsyncIterator[Rooms]:
    """Everything opened and migrated; closed again in reverse order. What is called `file_` stands in skep.toml."""
    data = Path(settings.data)
    async with AsyncExitStack() as stack:
        db, log, blobs, searcher, record_engine = await _engines(stack, settings)
        clock, timing = await _time(db, clock)
        access = Access(
            db, clock, data, open_read=settings.loopback if settings.open_read is None else settings.open_read
        )
        fleet = _fleet(settings, db, clock, worker_token)
        topics = Topics(db, log, clock, settings.message_limit)
        addresses, interest = GitAddresses(settings), Interest()
        sources = _sources(settings, db, clock, fleet, addresses)
        credentials = Credentials(db, clock, data, sources, file_credentials)
        search, about = Search(db, clock, searcher, interest), SourceReports(db, clock, sources)
        saved, spaces = Saved(db, clock, topics), Spaces(db, clock, process=f"{socket.gethostname()}:{data}")
        watching = Watching(saved, topics, clock, searcher, search.catalogue)
        stack.push_async_callback(spaces.close)
        lease, me = settings.task_lease, new_id("crd", clock.now())
        owners, statuses = Owners(db, me, min(BEAT_SECONDS, settings.beat_every)), Statuses(db, clock, me)
        placer, results = Placer(clock, owners, lease), Results(db, clock, settings.result_kinds)
        contexts, tasks = Contexts(db, clock, placer), Tasks(db, clock, blobs)
        dataone = _dataone(settings, db, clock, blobs, topics, fleet, sources, record_engine)
        packages = Packages(db, clock, blobs, data, settings.package_limit, settings.package_unpacked)
        journal, lists = Journal(db, clock, settings.log_lines), Lists(db, clock, sources)
        for room in (
            access,
            fleet,
            topics,
            sources,
            about,
            credentials,
            searcher,
            search,
            saved,
            watching,
            spaces,
            contexts,
            results,
            packages,
            journal,
            lists,
            dataone.store,
        ):
            await room.start()
        if "coordinator" in settings.roles:
            await owners.start()
        gathering = await _gathering(stack, db, clock, topics, settings, sources, searcher)
        records = await _records(db, record_engine, search, dataone)
        gather = Gather(sources, gathering.mirror, interest, Manifests(db, clock))
        http = _http(settings)
        stack.push_async_callback(http.close)
        rules = Rules(db, clock, topics, sources, contexts)
        await rules.start(file_rules)
        benchmarks, finding = Benchmarks(db, clock, sources), Finding(db, clock, topics, results)
        await benchmarks.start(file_benchmarks)
        evaluations = Evaluations(db, clock, Curves(results, benchmarks))
        generating = Generating(db, clock, topics, sources, finding, gather.history)
        triggers = Triggers(db, clock, topics, rules, partial(gather.changed, SYSTEM))

        intake = Intake(db, topics)
        adoption = Adoption(db, topics, intake, searcher, sources, settings.index_branches, watching.watch)
        core = Core(
            access,
            sources,
            lists,
            Bulk(db, clock, fleet, sources),
            credentials,
            Hooks(db, clock, fleet, credentials, addresses),
            topics,
            Groups(topics, settings.member_seconds),
            Queue(topics),
            search,
            about,
            saved,
            gather,
            spaces,
            contexts,
            tasks,
            results,
            packages,
            Workers(db, fleet),
            fleet,
            rules,
            benchmarks,
            evaluations,
            journal,
            StatusView(db, clock, fleet, searcher, statuses, gathering.servers),
            dataone,
        )
        reports, moves = Reports(db, clock, placer), Moves(db, clock, fleet, sources.raise_epoch)
        keep = settings.keep_contexts, settings.keep_failed
        dispatcher = Dispatcher(
            db, clock, owners, placer, lease, *keep, Resubmitting(db, clock, sources, owners).resubmit
        )
        stack.push_async_callback(owners.leave)
        stack.push_async_callback(statuses.close)
        duties: list[Loop] = [
            adoption.follow,
            partial(adoption.verify, settings.reindex_every, clock),
            _follower(settings, db, clock, topics, sources, fleet, http, credentials, gathering).follow,
            partial(sweep_for_ever, topics),
            Moving(db, clock, fleet, moves, contexts, owners, settings.beat_every).follow,
            dispatcher.run,
            dispatcher.keep,
            partial(news.tell, db, topics, clock),
            partial(archive.keep, db, blobs),
            triggers.follow,
            triggers.follow_clock,
            dataone.follow,
            Notices(db, clock, http, HostGuard(settings, clock, local=False)).follow,
            partial(statuses.keep, partial(_alive, fleet)),
            *([] if isinstance(log, TxLog) else [partial(relay.carry, db, log)]),
        ]
        loops: list[Loop] = [
            *timing,
            topics.follow,
            search.follow,
            records.follow,
            dataone.index.follow,
            watching.carry,
            *gathering.follows,
            gathering.bring,
            gathering.report,
            gathering.give,
            *(duties if "coordinator" in settings.roles else []),
        ]
        requests = Requests(
            clock,
            fleet,
            sources,
            adoption,
            spaces,
            contexts,
            tasks,
            reports,
            Calls(db, spaces, contexts),
            results,
            packages,
            journal,
            moves,
            gathering,
            about,
            dataone.harvests,
            generating,
            evaluations,
            lease,
        )
        desk = Desk(
            db,
            clock,
            fleet,
            topics,
            sources,
            lists,
            intake,
            spaces,
            statuses,
            reports,
            requests,
            credentials,
            interest,
            gathering.tunnels,
            Shares(db, clock, settings.beat_every),
        )
        yield Rooms(me, core, desk, adoption, searcher, gathering.tunnels, loops)


async def _engines(stack: AsyncExitStack, settings: Settings) -> tuple[Database, Log, Blobs, Searcher, Records]:
    data = Path(settings.data)
    db = await _opened(stack, "db", settings.database, data=data, durability=settings.durability)
    log = await _opened(stack, "log", settings.log, db=db)
    blobs = await find("blobs", settings.blobs)(settings.blobs, data=data)
    searcher = await _opened(stack, "index", settings.index, data=data, db=db)
    records = await _opened(stack, "records", settings.records, data=data)
    return db, log, blobs, searcher, records


async def _opened(stack: AsyncExitStack, what: Kind, url: str, **given: Any) -> Any:
    """The engine that the scheme of a URL names, until the stack is left."""
    engine = await find(what, url)(url, **given)
    stack.push_async_callback(engine.close)
    return engine


async def _time(db: Database, clock: Clock) -> tuple[Clock, list[Loop]]:
    if not db.shared:
        return clock, []
    shared = SharedClock(clock, db)
    await shared.measure()
    return shared, [shared.follow]


async def _alive(fleet: Fleet) -> set[str]:
    return {member.id for member in await fleet.members() if member.state == "alive"}


def _fleet(settings: Settings, db: Database, clock: Clock, token: str) -> Fleet:
    return Fleet(
        db,
        clock,
        token=token,
        beat_every=settings.beat_every,
        grace=settings.grace,
        expected=settings.workers_expected,
        first_wait=settings.first_wait,
    )


async def _records(db: Database, engine: Records, search: Search, dataone: DataOne) -> ReportRecords:
    reports = ReportRecords(db, engine)
    for room in (reports, dataone.index):
        await room.start()
    search.records |= {"report": reports.search, "record": dataone.index.find}
    return reports


def _sources(settings: Settings, db: Database, clock: Clock, fleet: Fleet, git: Addresses) -> Sources:
    kinds = {"git": git, KIND: DataoneAddresses(settings)}
    return Sources(db, clock, fleet, kinds, {label.name: label for label in settings.label})


def _dataone(
    settings: Settings,
    db: Database,
    clock: Clock,
    blobs: Blobs,
    topics: Topics,
    fleet: Fleet,
    sources: Sources,
    records: Records,
) -> DataOne:
    base = settings.public_url.rstrip("/") or f"http://{settings.listen}"
    store = Store(db, clock, blobs, topics, Formats(), settings.dataone_node)
    nodes = Nodes(db, clock, fleet, sources)
    replication = Replication(db, clock, store, nodes)
    harvests = Harvests(
        *(db, clock, fleet, nodes, store, replication),
        queue=settings.dataone_queue,
        data_bytes=settings.dataone_data,
        full_every=settings.dataone_full_every,
    )
    after, within = settings.dataone_index_after, settings.dataone_index_within
    name = f"{socket.gethostname()}:{settings.data}" if db.shared else ""
    index = RecordIndex(db, clock, store, records, after=after, within=within, base=base, name=name)
    return DataOne(store, index, nodes, harvests, replication, f"{base}/cn")


def _http(settings: Settings) -> Http:
    return Http(ca=ca_bundle(), timeout=settings.look_timeout, largest=_LARGEST_LISTING, connections=8, validators=True)


async def _gathering(
    stack: AsyncExitStack,
    db: Database,
    clock: Clock,
    topics: Topics,
    settings: Settings,
    sources: Sources,
    searcher: Searcher,
) -> Gathering:
    servers = Servers(db, clock, _place(settings, clock))
    await servers.start()
    stack.push_async_callback(servers.leave)
    tunnels = Tunnels(db, clock, servers, await openings.start(db), ca_of(settings))
    stack.push_async_callback(tunnels.close)
    receiving = Receiving(clock, Path(settings.data), settings.max_repository, tunnels, sources, searcher)
    gathering = Gathering(db, clock, topics, settings, servers, tunnels, receiving)
    await gathering.start()
    return gathering


def _place(settings: Settings, clock: Clock) -> Place:
    return Place(
        keep_id(Path(settings.data) / "gathered", "srv", clock),
        settings.name or socket.gethostname(),
        settings.roles,
        settings.public_url or f"http://{settings.listen}",
        settings.link_public or settings.link_listen,
        settings.gather_labels,
    )


def _follower(
    settings: Settings,
    db: Database,
    clock: Clock,
    topics: Topics,
    sources: Sources,
    fleet: Fleet,
    http: Http,
    credentials: Credentials,
    gathering: Gathering,
) -> Follower:
    asking = Asking(http, HostGuard(settings, clock, local=False), clock, credentials.apis)
    every = settings.list_every, settings.manifest_every
    apply = Apply(db, clock, fleet, sources)
    return Follower(db, clock, topics, sources, apply, gathering.mirror, asking, *every, gathering.has)
