"""`skep up`: coordinator, manager and aggregator in this process, a worker as its child; or those roles of them that
the settings name. A coordinator has the link, whoever serves has the HTTP doors."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import logging
import os
import resource
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec
import uvicorn
import uvloop

from skep.base.caller import SYSTEM, Caller
from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Conflict, NoSpace, SkepError
from skep.base.logs import LineBuffer, set_up_logs
from skep.base.loops import Loop, kept, on_signals
from skep.benchmarks.api import BenchmarkSpec
from skep.client.transport import advertise, withdraw
from skep.config.settings import Settings, is_loopback, split_address
from skep.indexing.manager import manage
from skep.interfaces.http.app import create_app
from skep.interfaces.http.asgi import HeldProtocol
from skep.processes.build import Rooms, open_rooms
from skep.rpc import tunnel
from skep.rpc.connect import CERT, KEY, Dial, ca_of, days_left, joined, token_of
from skep.rpc.server import LinkServer, listen
from skep.rules.api import RuleSpec
from skep.sources.model import CredentialSpec
from skep.storage.sqlite import path_of

# The worker as a child process of `skep up`: started with its settings on stdin, restarted when it dies.
#
# The pipe stays open for as long as the parent lives; when it ends, the child stops by itself. No token or setting ever
# stands in a command line or an environment.

child_log = logging.getLogger("skep.up")


class Start(msgspec.Struct, frozen=True):
    """What the child reads from the first line of its stdin."""

    settings: Settings
    link: Dial
    token: str


async def keep_worker(start: Start) -> None:
    """Run the child for ever; a crash is logged and followed by a new start, with a growing pause."""
    pause = 0.5
    while True:
        began = asyncio.get_running_loop().time()
        code = await _run(start)
        if asyncio.get_running_loop().time() - began > 60.0:
            pause = 0.5
        child_log.warning("worker ended, starting it again", extra={"exit_code": code, "pause": pause})
        await asyncio.sleep(pause)
        pause = min(pause * 2, 30.0)


async def _run(start: Start) -> int:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.processes.worker",
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        child.stdin.write(msgspec.json.encode(start) + b"\n")
        with contextlib.suppress(ConnectionError):
            await child.stdin.drain()
        return await child.wait()
    finally:
        # closing the pipe asks it to stop; a child that does not is ended
        child.stdin.close()
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 10.0)
            except TimeoutError:
                child.kill()
                await child.wait()


# The data folder, and the file of the database: writable, of this process alone, and locked while it runs.


@contextmanager
def locked(data: Path) -> Iterator[None]:
    hint = "stop it, or give this one its own folder with --data"
    with _locked(data, "lock", f"is running on {data}", hint):
        yield


@contextmanager
def database_locked(settings: Settings) -> Iterator[None]:
    """A file belongs to one serving process, whatever its data folder is: nobody tells another what was written."""
    if not settings.database.startswith("sqlite:"):
        yield
        return
    path = path_of(settings.database, Path(settings.data)).resolve()
    hint = "stop it, or share a PostgreSQL: see docs/deploying.md"
    with _locked(path.parent, f"{path.name}.lock", f"has the database {path} open", hint):
        yield


@contextmanager
def _locked(folder: Path, name: str, what: str, hint: str) -> Iterator[None]:
    """The lock is the kernel's: it falls with the process, however that ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _explained(error, folder) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 40, 0).decode(errors="replace").strip() or "unknown"
            raise Conflict(f"another Skep (process {owner}) {what}", hint=hint) from None
        _sign(file, folder)
        yield
    finally:
        os.close(file)


def _sign(file: int, folder: Path) -> None:
    """Writing the process id proves that the folder can be written to, before anything else is started."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        os.fsync(file)
    except OSError as error:
        raise _explained(error, folder) from error


def _explained(error: OSError, folder: Path) -> BadInput | NoSpace:
    if error.errno == errno.ENOSPC:
        return NoSpace(f"the disk of {folder} is full", hint="free some space, then start again")
    return BadInput(
        f"the folder {folder} cannot be used: {error.strerror}",
        hint="choose another (--data, --database), or give this user the right to write there",
    )


# The coordinator's link: a socket for this machine's worker and, where it is wanted, a port for others'.

linking_log = logging.getLogger("skep.rpc")
#: a unix socket's path has at most 107 bytes
_LONGEST_SOCKET = 100
_SOON_DAYS = 30


async def open_link(settings: Settings, rooms: Rooms, stack: contextlib.AsyncExitStack) -> Dial:
    """Closed by the stack; returns how this machine's worker dials it, and knows whoever else it brings bytes to."""
    link, socket = LinkServer(rooms.desk, beat_every=settings.beat_every), _socket(Path(settings.data), stack)
    rooms.tunnels.attach(link)
    if token := token_of(settings):
        await rooms.core.fleet.tokens.know(token)
    if settings.link_listen:
        credentials = credentials_of(settings)
        address = await link.start(settings.link_listen, credentials, socket=socket)
        linking_log.info("workers and managers may join", extra={"at": address, "tls": credentials is not None})
    else:
        await link.start(socket)
    stack.push_async_callback(link.stop)
    return Dial((socket,), ca_of(settings))


async def open_meeting(settings: Settings, rooms: Rooms, stack: contextlib.AsyncExitStack) -> None:
    """Where workers bring what an aggregator apart asked for; they attach to a coordinator."""
    methods = {tunnel.METHOD: rooms.tunnels.meeting.carry}
    server, address = await listen(methods, settings.link_listen, credentials_of(settings))
    stack.push_async_callback(server.stop, 1.0)
    linking_log.info("workers may bring what is asked of them", extra={"at": address})


def _socket(data: Path, stack: contextlib.AsyncExitStack) -> str:
    path = data / "link.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-"))) / "link.sock"
    path.unlink(missing_ok=True)
    return f"unix:{path}"


def credentials_of(settings: Settings) -> Any:
    """None, which is plain text, only where no other machine can listen."""
    folder = Path(settings.data) / "tls"
    cert, key = Path(settings.tls_cert or folder / CERT), Path(settings.tls_key or folder / KEY)
    if not settings.tls_cert and not cert.exists():
        if is_loopback(split_address(settings.link_listen)[0]):
            return None
        raise BadInput(
            f"link_listen ({settings.link_listen}) can be reached from elsewhere and has no certificate",
            hint="`skep ca init HOST` makes one; or name yours in tls_cert and tls_key",
        )
    try:
        chain, secret = cert.read_bytes(), key.read_bytes()
        left = days_left(chain, time.time())
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the certificate {cert} with the key {key} cannot be used: {error}", hint="see tls_cert, tls_key"
        ) from error
    if left < _SOON_DAYS:
        about = "has expired: members refuse it" if left <= 0 else f"expires in {left:.0f} days"
        linking_log.warning(
            "the certificate of the link %s; `skep ca init` makes a new one", about, extra={"file": str(cert)}
        )
    return grpc.ssl_server_credentials([(secret, chain)])


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
