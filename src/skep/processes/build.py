"""Puts a serving process together: engines by URL, rooms over them, one core in front."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from skep.access.audit import Audit
from skep.access.tokens import Access
from skep.analysis.service import SourceReports
from skep.base.caller import SYSTEM
from skep.base.clock import Clock
from skep.base.ids import new_id
from skep.base.loops import Loop
from skep.benchmarks.api import BenchmarkSpec
from skep.benchmarks.change_points import Curves, Finding, Notices
from skep.benchmarks.evaluations import Evaluations
from skep.benchmarks.generator import Generating, Resubmitting
from skep.benchmarks.service import Benchmarks
from skep.config.settings import Settings
from skep.fleet.assignments import Shares
from skep.fleet.members import Interest
from skep.fleet.tunnels import Tunnels
from skep.indexing.updates import Adoption
from skep.interfaces.core import Core
from skep.mirrors.access import Gather, Manifests
from skep.mirrors.replication import Moves, Moving
from skep.net.guard import Guard as HostGuard
from skep.packages.service import Packages
from skep.processes import parts
from skep.processes.requests import Requests
from skep.processes.session_handler import Desk
from skep.results.service import Results
from skep.rules.api import RuleSpec
from skep.rules.service import Rules
from skep.rules.triggers import Triggers
from skep.search.saved import Saved, Watching
from skep.search.service import Search
from skep.sources.credentials import Credentials
from skep.sources.git.source_type import GitAddresses
from skep.sources.lists.service import Lists
from skep.sources.model import CredentialSpec
from skep.sources.report_handler import Intake
from skep.sources.service import Bulk
from skep.sources.webhooks import Hooks
from skep.spaces.processes import Journal, Statuses
from skep.spaces.service import Spaces
from skep.status.service import StatusView
from skep.storage.code_index.base import Searcher
from skep.storage.topic_log import TxLog
from skep.tasks import service
from skep.tasks.contexts import Calls, Contexts
from skep.tasks.dispatcher import Dispatcher, Reports
from skep.tasks.placer import BEAT_SECONDS, Owners, Placer
from skep.tasks.service import Tasks, Workers
from skep.topics import outbox
from skep.topics import service as relay
from skep.topics.groups import Groups
from skep.topics.legacy_queue import Queue
from skep.topics.outbox import sweep_for_ever
from skep.topics.service import Topics


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
        db, log, blobs, searcher, record_engine = await parts.engines(stack, settings)
        clock, timing = await parts.time(db, clock)
        access = Access(
            db, clock, data, open_read=settings.loopback if settings.open_read is None else settings.open_read
        )
        fleet = parts.fleet(settings, db, clock, worker_token)
        topics = Topics(db, log, clock, settings.message_limit)
        addresses, interest = GitAddresses(settings), Interest()
        sources = parts.sources(settings, db, clock, fleet, addresses)
        credentials = Credentials(db, clock, data, sources, file_credentials)
        search, saved = Search(db, clock, searcher, interest, sources.by_label), Saved(db, clock, topics)
        about, client = SourceReports(db, clock, sources), parts.node_client(stack, settings, clock, credentials)
        spaces = Spaces(db, clock, process=f"{socket.gethostname()}:{data}")
        watching = Watching(saved, topics, clock, searcher, search.catalogue)
        stack.push_async_callback(spaces.close)
        lease, me = settings.task_lease, new_id("crd" if "coordinator" in settings.roles else "agg", clock.now())
        owners, statuses = Owners(db, me, min(BEAT_SECONDS, settings.beat_every)), Statuses(db, clock, me)
        placer, results = Placer(clock, owners, lease), Results(db, clock, settings.result_kinds)
        contexts, tasks = Contexts(db, clock, placer), Tasks(db, clock, blobs)
        dataone = parts.dataone(settings, db, clock, blobs, topics, fleet, sources, record_engine, client)
        packages = Packages(
            *(db, clock, blobs, data), (settings.package_limit, settings.package_unpacked), dataone.store.keeps
        )
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
        gathering = await parts.gathering(stack, db, clock, topics, settings, sources, searcher, search)
        records = await parts.records(settings, db, record_engine, search, dataone, gathering.mirror)
        gather, http = Gather(sources, gathering.mirror, interest, Manifests(db, clock)), parts.http(settings)
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
            Audit(db, clock),
            sources,
            lists,
            Bulk(db, clock, sources),
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
            Workers(db, clock, fleet),
            fleet,
            rules,
            benchmarks,
            evaluations,
            journal,
            StatusView(db, clock, fleet, searcher, statuses, gathering.servers),
            dataone,
        )
        reports, moves = Reports(db, clock, placer), Moves(db, clock, fleet, sources.raise_epoch, settings.replicas)
        keep = settings.keep_contexts, settings.keep_failed
        dispatcher = Dispatcher(
            db, clock, owners, placer, lease, *keep, Resubmitting(db, clock, sources, owners).resubmit
        )
        stack.push_async_callback(owners.leave)
        stack.push_async_callback(statuses.close)
        duties: list[Loop] = [
            adoption.follow,
            *([] if gathering.own_index else [partial(adoption.verify, settings.reindex_every, clock)]),
            parts.follower(settings, db, clock, topics, sources, fleet, http, credentials, gathering).follow,
            partial(sweep_for_ever, topics),
            core.audit.keep,
            Moving(db, clock, fleet, moves, contexts, owners, settings.beat_every).follow,
            dispatcher.run,
            dispatcher.keep,
            partial(outbox.tell, db, topics, clock),
            partial(service.keep, db, blobs),
            triggers.follow,
            triggers.follow_clock,
            *parts.dataone_loops(settings, dataone, client),
            Notices(db, clock, http, HostGuard(settings, clock, local=False)).follow,
            *([] if isinstance(log, TxLog) else [partial(relay.carry, db, log)]),
        ]
        loops: list[Loop] = [
            *timing,
            topics.follow,
            core.groups.follow,
            search.follow,
            records.follow,
            dataone.index.follow,
            watching.carry,
            partial(statuses.keep, partial(parts.alive, fleet)),
            *gathering.loops,
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
