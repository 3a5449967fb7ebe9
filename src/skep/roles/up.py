"""`skep up`: coordinator, manager and aggregator in this process, a worker as its child; or those roles of them that
the settings name. A coordinator has the link, whoever serves has the HTTP doors."""

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import uvicorn
import uvloop

from skep.client.whereabouts import advertise, withdraw
from skep.clock import SystemClock
from skep.config import Settings, split_address
from skep.doors.http.app import create_app
from skep.doors.http.held import HeldProtocol
from skep.errors import BadInput, SkepError
from skep.link.dial import Dial
from skep.link.join import joined
from skep.link.lines import LineBuffer
from skep.loops import Loop, kept
from skep.manager.service import manage
from skep.model.benchmark import BenchmarkSpec
from skep.model.caller import SYSTEM, Caller
from skep.model.credential import CredentialSpec
from skep.model.rule import RuleSpec
from skep.roles.build import Rooms, open_rooms
from skep.roles.child import Start, keep_worker
from skep.roles.folder import database_locked, locked
from skep.roles.linking import open_link, open_meeting
from skep.roles.logs import set_up_logs
from skep.roles.stopping import on_signals

log = logging.getLogger("skep.up")
#: requests still running at a stop get this long
_GRACE_SECONDS = 5
_MERGE_SECONDS = 10.0
_ANY = {"0.0.0.0", "::"}  # noqa: S104  # to compare with


def main(
    settings: Settings,
    add: Sequence[str] = (),
    rules: Sequence[RuleSpec] = (),
    credentials: Sequence[CredentialSpec] = (),
    benchmarks: Sequence[BenchmarkSpec] = (),
) -> None:
    _check(settings)
    lines = set_up_logs(settings.log_level)
    data = Path(settings.data).resolve()
    # the worker runs elsewhere, and so may whoever reads the log
    settings = msgspec.structs.replace(settings, data=str(data))
    _raise_file_limit()
    with (
        locked(data),
        database_locked(settings),
        _bound(settings) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rooms = partial(
            open_rooms,
            settings,
            SystemClock(),
            file_rules=rules,
            file_credentials=credentials,
            file_benchmarks=benchmarks,
        )
        runner.run(_up(settings, listener, lines, add, rooms))


def _check(settings: Settings) -> None:
    if settings.link_listen and _overlap(settings.address, split_address(settings.link_listen)):
        raise BadInput(
            f"listen ({settings.listen}) and link_listen ({settings.link_listen}) are the same address",
            hint="people and workers come to two ports; choose another for one of them",
        )
    if "coordinator" not in settings.roles and not settings.database.startswith("postgres"):
        raise BadInput(
            "an aggregator apart from the coordinator needs PostgreSQL, which both of them open",
            hint='set database = "postgresql://…" on both, or roles = ["coordinator", "aggregator"] on one',
        )


def _overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    hosts = {one[0], other[0]}
    return one[1] == other[1] != 0 and (len(hosts) == 1 or bool(hosts & _ANY))


def _raise_file_limit() -> None:
    """Each index shard keeps two files open, each connection one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bound(settings: Settings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # or another process, too, could bind to it until this one is ready
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise BadInput(
                f"{settings.listen} is taken by another program", hint="choose another with --listen HOST:PORT"
            ) from error
        raise BadInput(f"cannot listen on {settings.listen}: {error.strerror}", hint="check --listen") from error
    return listener


async def _up(
    settings: Settings,
    listener: socket.socket,
    lines: LineBuffer,
    add: Sequence[str],
    opened: Callable[[str], contextlib.AbstractAsyncContextManager[Rooms]],
) -> None:
    token = secrets.token_hex(32)
    stop = on_signals()
    async with opened(token) as rooms, contextlib.AsyncExitStack() as stack:
        closing = asyncio.Event()
        server = _server(rooms, settings, closing)
        members = await _members(settings, rooms, token, stack)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[listener]))
            store = partial(lines.run, lambda batch: rooms.core.log.store(rooms.me, 0, batch.lines))
            check = partial(_check_index, rooms, settings.reindex_every)
            sweep = [rooms.adoption.sweep] if "coordinator" in settings.roles else []
            keep: tuple[Loop, ...] = (*rooms.loops, partial(_merge, rooms), check, store, *members, *sweep)
            loops = [group.create_task(kept(loop)) for loop in keep]
            await _add(rooms.core.lists.add, settings.lists)
            await _add(rooms.core.sources.add, add)
            await _greet(rooms, listener)
            stack.callback(_note_whereabouts(listener, Path(settings.data)))
            gc.freeze()  # what is there now stays: to look through it for garbage would stop the loop for 50 ms
            await stop.wait()
            log.info("stopping")
            closing.set()  # or who follows a topic would hold the door open
            server.should_exit = True
            await serving
            for loop in loops:
                loop.cancel()


async def _members(settings: Settings, rooms: Rooms, token: str, stack: contextlib.AsyncExitStack) -> list[Loop]:
    """The worker and manager of this machine; they dial the coordinator here, or else those that they are told of."""
    dial: Dial
    if "coordinator" in settings.roles:
        dial = await open_link(settings, rooms, stack)
    elif settings.link_listen:
        await open_meeting(settings, rooms, stack)
    if "coordinator" not in settings.roles and {"worker", "manager"} & set(settings.roles):
        dial, token = joined(settings)
    if "worker" in settings.roles:
        return [partial(keep_worker, Start(settings, dial, token))]
    if "manager" in settings.roles:
        return [partial(manage, dial, token, SystemClock(), name=settings.name or socket.gethostname())]
    return []


class _Server(uvicorn.Server):
    """Signals are ours: the worker has to stop too."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as untyped as what it replaces
        yield


def _server(rooms: Rooms, settings: Settings, closing: asyncio.Event) -> uvicorn.Server:
    config = uvicorn.Config(
        create_app(rooms.core, settings, closing=closing),
        http=HeldProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        # who is asked about a proxy's address must see that, and not what the proxy says of its own client
        proxy_headers=not settings.trusted_proxies,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return _Server(config)


async def _merge(rooms: Rooms) -> None:
    while True:
        merged = await rooms.searcher.merge_once()
        await asyncio.sleep(0 if merged else _MERGE_SECONDS)


async def _check_index(rooms: Rooms, every: float) -> None:
    """At start and then so often, read the index whole: what a disk has changed is noticed by nobody else."""
    while True:
        await rooms.searcher.check()
        await asyncio.sleep(every)


async def _add(add: Callable[[Caller, str], Awaitable[object]], urls: Sequence[str]) -> None:
    for url in urls:
        try:
            await add(SYSTEM, url)
        except SkepError as error:
            log.error("could not add a source or list", extra={"url": url, "reason": error.message, "hint": error.hint})


def _note_whereabouts(listener: socket.socket, data: Path) -> Callable[[], None]:
    """So that the command line of the same user finds its token; returns what takes the note back."""
    port = listener.getsockname()[1]
    advertise(port, data)
    return lambda: withdraw(port, data)


async def _greet(rooms: Rooms, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ticket = await rooms.core.access.login_ticket(SYSTEM)
    print(f"Skep is up at {base}", file=sys.stderr)  # noqa: T201  # for the person who typed `skep up`
    print(f"  log in with your browser (once, within 10 minutes): {base}/login?ticket={ticket}", file=sys.stderr)  # noqa: T201
