"""How single parts of a serving process are made from its settings."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from skep.analysis.service import NAMES, ReportRecords
from skep.base.clock import Clock, SystemClock
from skep.base.loops import Loop
from skep.config.settings import Settings
from skep.dataone.client import NodeClient
from skep.dataone.formats import Formats
from skep.dataone.harvests import Harvests, Previews
from skep.dataone.hosted_replicas import Copies, Pulls
from skep.dataone.index import RecordIndex
from skep.dataone.nodes import KIND, Nodes
from skep.dataone.replication import Replication
from skep.dataone.science_reader import BY_NAME, HIDDEN
from skep.dataone.service import DataOne
from skep.dataone.source_type import DataoneAddresses, base_of
from skep.dataone.store import Store
from skep.dataone.types import ObjectFormatList
from skep.fleet import tunnels as openings
from skep.fleet.members import Fleet
from skep.fleet.tunnels import Place, Servers, Tunnels, keep_id
from skep.mirrors.receive import Receiving
from skep.mirrors.sync import Gathering
from skep.net.guard import Guard as HostGuard
from skep.net.http import Exchange
from skep.processes.engines import Kind, find
from skep.rpc.connect import ca_of
from skep.search.service import Search
from skep.sources.credentials import Credentials, sealed
from skep.sources.git.documents import rules_of
from skep.sources.git.http import Http
from skep.sources.git.ls_refs import ca_bundle
from skep.sources.lists.apply import Apply
from skep.sources.lists.asking import Asking
from skep.sources.lists.follow import Follower
from skep.sources.service import Sources
from skep.sources.source_type import Addresses
from skep.storage.blobs import Blobs
from skep.storage.code_index.base import Searcher
from skep.storage.database import Database, SharedClock
from skep.storage.records.base import Records
from skep.storage.topic_log import Log
from skep.topics.service import Topics

#: bytes of one page of a forge's API
_LARGEST_LISTING = 16 << 20


async def engines(stack: AsyncExitStack, settings: Settings) -> tuple[Database, Log, Blobs, Searcher, Records]:
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


async def time(db: Database, clock: Clock) -> tuple[Clock, list[Loop]]:
    # another clock than the machine's was given on purpose
    if not db.shared or not isinstance(clock, SystemClock):
        return clock, []
    shared = SharedClock(clock, db)
    await shared.measure()
    return shared, [shared.follow]


async def alive(fleet: Fleet) -> set[str]:
    return {member.id for member in await fleet.members() if member.state == "alive"}


def fleet(settings: Settings, db: Database, clock: Clock, token: str) -> Fleet:
    return Fleet(
        db,
        clock,
        token=token,
        beat_every=settings.beat_every,
        grace=settings.grace,
        expected=settings.workers_expected,
        first_wait=settings.first_wait,
    )


async def records(
    settings: Settings,
    db: Database,
    engine: Records,
    search: Search,
    dataone: DataOne,
    mirror: Callable[[str], Path],
) -> ReportRecords:
    reports = ReportRecords(db, engine, _own(settings, db))
    for room in (reports, dataone.index):
        await room.start()
    search.records |= {"report": reports.search, "record": dataone.index.find}
    search.fields |= {"report": NAMES, "record": {name: "" for name in BY_NAME if name not in HIDDEN}}
    search.read_mirrors(mirror, Path(settings.data) / "past", rules_of(settings))
    return reports


def sources(settings: Settings, db: Database, clock: Clock, fleet: Fleet, git: Addresses) -> Sources:
    kinds = {"git": git, KIND: DataoneAddresses(settings)}
    return Sources(db, clock, fleet, kinds, {label.name: label for label in settings.label})


def dataone(
    settings: Settings,
    db: Database,
    clock: Clock,
    blobs: Blobs,
    topics: Topics,
    fleet: Fleet,
    sources: Sources,
    records: Records,
    client: Callable[[str], Awaitable[NodeClient]],
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
        siblings=settings.dataone_siblings,
    )
    after, within = settings.dataone_index_after, settings.dataone_index_within
    own = _own(settings, db)
    index = RecordIndex(db, clock, store, records, after=after, within=within, base=base, name=own)
    copies = None
    if cn := base_of(settings.dataone_copies_for):
        urn, room = settings.dataone_copies_node, settings.dataone_copies_bytes
        copies = Copies(store, client, cn=cn, urn=urn, base=f"{base}/mn", room=room)
    return DataOne(store, index, nodes, harvests, replication, Previews(db, nodes, client), f"{base}/cn", copies)


def node_client(
    stack: AsyncExitStack, settings: Settings, clock: Clock, credentials: Credentials
) -> Callable[[str], Awaitable[NodeClient]]:
    """Speaks to a node by its base URL, from this process; a host is shown the credential that is for all of it."""
    guard = HostGuard(settings, clock, local=False)
    exchange = Exchange(ca=ca_bundle(), timeout=settings.look_timeout, largest=_LARGEST_LISTING)
    stack.callback(exchange.close)

    async def client(base: str) -> NodeClient:
        place = guard.check_url(f"{base_of(base)}/v2")
        keys = await credentials.keys() if sealed(place) else ()
        key = next((one for one in keys if one.public and not one.source and one.host == place.authority), None)
        return NodeClient(exchange, guard, clock, base_of(base), "v2", key)

    return client


def dataone_loops(
    settings: Settings, dataone: DataOne, client: Callable[[str], Awaitable[NodeClient]]
) -> Sequence[Loop]:
    async def formats() -> ObjectFormatList:
        return await (await client(settings.dataone_formats)).formats()

    follow = partial(dataone.store.format_list.follow, formats if settings.dataone_formats else None)
    pulls = [Pulls(dataone.copies, Path(settings.data) / "copies").follow] if dataone.copies else []
    return [dataone.follow, follow, *pulls]


def _own(settings: Settings, db: Database) -> str:
    """Names the records of this process, where others on the same database have theirs."""
    return f"{socket.gethostname()}:{settings.data}" if db.shared else ""


def http(settings: Settings) -> Http:
    return Http(ca=ca_bundle(), timeout=settings.look_timeout, largest=_LARGEST_LISTING, connections=8, validators=True)


async def gathering(
    stack: AsyncExitStack,
    db: Database,
    clock: Clock,
    topics: Topics,
    settings: Settings,
    sources: Sources,
    searcher: Searcher,
    search: Search,
) -> Gathering:
    servers = Servers(db, clock, _place(settings, clock))
    await servers.start()
    stack.push_async_callback(servers.leave)
    tunnels = Tunnels(db, clock, servers, await openings.start(db), ca_of(settings))
    stack.push_async_callback(tunnels.close)
    receiving = Receiving(clock, Path(settings.data), settings.max_repository, tunnels, sources, searcher)
    gathering = Gathering(db, clock, topics, settings, servers, tunnels, receiving)
    await gathering.start()
    search.compare = gathering.compare
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


def follower(
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
    apply = Apply(db, clock, fleet, sources.catalogue)
    return Follower(db, clock, topics, sources, apply, gathering.mirror, asking, *every, gathering.has)
