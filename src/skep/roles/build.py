"""Puts a serving process together: engines by URL, rooms over them, one core in front."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from skep.access.service import Access
from skep.clock import Clock
from skep.config import Settings
from skep.core import Core
from skep.engines.index.base import Searcher
from skep.engines.log.base import TxLog
from skep.engines.open import find
from skep.fleet.service import Fleet
from skep.gather.service import Gather
from skep.model.ids import new_id
from skep.roles.desk import Desk
from skep.search.adoption import Adoption
from skep.search.service import Search
from skep.sources.git.addresses import GitAddresses
from skep.sources.intake import Intake
from skep.sources.service import Sources
from skep.status import StatusView
from skep.tasks import news
from skep.tasks.contexts import Contexts
from skep.tasks.dispatcher import Dispatcher
from skep.tasks.owners import Owners
from skep.tasks.placing import Placer
from skep.tasks.reports import Reports
from skep.tasks.service import Tasks
from skep.topics import relay
from skep.topics.groups import Groups
from skep.topics.queue import Queue
from skep.topics.retention import sweep_for_ever
from skep.topics.service import Topics

Loop = Callable[[], Coroutine[Any, Any, None]]


class Rooms(msgspec.Struct, frozen=True):
    core: Core
    desk: Desk
    adoption: Adoption
    searcher: Searcher
    #: what runs for as long as the process does
    loops: list[Loop]


@asynccontextmanager
async def open_rooms(settings: Settings, clock: Clock, worker_token: str) -> AsyncIterator[Rooms]:
    """Everything opened and migrated; closed again in reverse order."""
    data = Path(settings.data)
    async with AsyncExitStack() as stack:
        db = await find("db", settings.database)(settings.database, data=data, durability=settings.durability)
        stack.push_async_callback(db.close)
        log = await find("log", settings.log)(settings.log, db=db)
        stack.push_async_callback(log.close)
        searcher = await find("index", settings.index)(settings.index, data=data, db=db)
        stack.push_async_callback(searcher.close)

        access = Access(
            db, clock, data, open_read=settings.loopback if settings.open_read is None else settings.open_read
        )
        fleet = Fleet(db, clock, token=worker_token, beat_every=settings.beat_every)
        topics = Topics(db, log, clock, settings.message_limit)
        sources = Sources(db, clock, fleet, {"git": GitAddresses(settings)})
        search = Search(db, searcher)
        lease, owners = settings.task_lease, Owners(db, new_id("crd", clock.now()))
        placer = Placer(clock, owners, lease)
        contexts, tasks = Contexts(db, clock, placer), Tasks(db, clock)
        for room in (access, fleet, topics, sources, searcher, search, contexts, owners):
            await room.start()

        intake = Intake(db, topics)
        adoption = Adoption(db, fleet, topics, intake, searcher)
        core = Core(
            access,
            sources,
            topics,
            Groups(topics, settings.member_seconds),
            Queue(topics),
            search,
            Gather(sources, data),
            contexts,
            tasks,
            StatusView(db, clock, fleet, searcher),
        )
        reports = Reports(db, clock, placer)
        dispatcher = Dispatcher(db, clock, owners, placer, lease, settings.keep_contexts)
        stack.push_async_callback(owners.leave)
        loops: list[Loop] = [topics.follow, search.follow, adoption.follow, partial(sweep_for_ever, topics)]
        loops += [dispatcher.run, dispatcher.keep, partial(news.tell, db, topics, clock)]
        if not isinstance(log, TxLog):
            loops.append(partial(relay.carry, db, log))
        desk = Desk(db, clock, fleet, topics, sources, intake, adoption, contexts, tasks, reports, lease)
        yield Rooms(core, desk, adoption, searcher, loops)
