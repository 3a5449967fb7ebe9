"""The runtime: runs tasks as child processes of a worker, and leaves nothing behind.

async with Runtime(folder, settings, clock) as runtime:
    ended = await runtime.run(command, on_output)
"""

import asyncio
import logging
import os
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, get_args

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, SkepError, Unavailable
from skep.config.settings import Settings
from skep.runtime import commands
from skep.runtime.isolation import Planner, find
from skep.runtime.supervisor_client import MARK, Keeping, end_left_overs
from skep.runtime.task_api import Api, Handler
from skep.tasks.model import Command, RunEnded, Stream

# The folders of runs: one each, removed after success, kept after failure until enough newer ones have failed.

#: folders that a task may write to; it must not replace the files of its output
_OF_TASK = ("work", "tmp", "shm")


class Folders:
    """FOLDER/runs/STARTED-TASK-ATTEMPT with `work`, `tmp`, `shm`, `stdout` and `stderr`."""

    def __init__(self, folder: Path, history: int) -> None:
        self.folder = folder
        self._runs = folder / "runs"
        self._history = history
        self._busy: set[str] = set()
        #: runs end in several threads at once
        self._pruning = threading.Lock()

    def make(self, task: str, attempt: int, now: float) -> Path:
        started = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
        run = self._runs / f"{started}-{task}-{attempt}"
        self._busy.add(run.name)
        self._runs.mkdir(0o700, parents=True, exist_ok=True)
        run.mkdir(0o700)
        for name in _OF_TASK:
            (run / name).mkdir(0o700)
        return run

    def give(self, run: Path, uid: int, gid: int) -> None:
        """What is the task's own to another user."""
        for name in _OF_TASK:
            os.chown(run / name, uid, gid)
            for above, folders, files in os.walk(run / name):
                for one in (*folders, *files):
                    os.chown(Path(above, one), uid, gid, follow_symlinks=False)

    def leave(self, run: Path, *, keep: bool) -> None:
        try:
            if not keep:
                remove(run)
        finally:  # not before: a prune in another thread would remove it at the same time, and both would fail
            self._busy.discard(run.name)
        if keep:
            self.prune()

    def prune(self) -> None:
        with self._pruning:
            kept = sorted(name for name in self._names() if name not in self._busy)
            for name in kept[: max(0, len(kept) - self._history)]:
                remove(self._runs / name)

    def _names(self) -> list[str]:
        return [path.name for path in self._runs.iterdir()] if self._runs.exists() else []


def remove(folder: Path) -> None:
    """Whatever a task did to the modes of what is in it. What cannot be removed is tried again at the next prune."""
    try:
        shutil.rmtree(folder)
    except OSError:
        for above, names, _ in os.walk(folder):
            for path in (Path(above, name) for name in names):
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def size(folder: Path) -> int:
    """Bytes on disk. A task changes it meanwhile, so what vanishes is nothing."""
    total, ahead = 0, [str(folder)]
    while ahead:
        try:
            with os.scandir(ahead.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
        except OSError:
            continue
    return total


# What a run writes: told live in chunks, written to files, bounded, and never faster than it is taken.

log = logging.getLogger("skep.runtime")

OnOutput = Callable[[Stream, bytes], Awaitable[None] | None]
_CHUNK = 1 << 16
_GATHER_SECONDS = 0.1
#: for the last of it to come, once nothing is left that could write
_LINGER_SECONDS = 5.0
#: whoever writes so many times what is kept is ended
_FLOOD = 10


class Outputs:
    """Both streams of a run. `end` is called with a reason when it should not go on."""

    def __init__(self, folder: Path, limit: int, on_output: OnOutput, end: Callable[[str], None]) -> None:
        self._streams = [_Stream(name, folder / name, limit, on_output, end) for name in get_args(Stream)]
        self._pumps: list[asyncio.Task[None]] = []
        self._end = end

    @contextmanager
    def open(self) -> Iterator[list[int]]:
        """The descriptors to write to; whoever needs them longer has copied them by the end of this."""
        writing: list[int] = []
        try:
            for stream in self._streams:
                reading, write = os.pipe()
                writing.append(write)
                pump = asyncio.create_task(stream.pump(reading))
                # not in `pump`: what is cancelled before its first step never gets to its `finally`
                pump.add_done_callback(partial(_close, reading))
                pump.add_done_callback(self._check)
                self._pumps.append(pump)
            yield writing
        finally:
            for file in writing:
                os.close(file)

    def stop(self) -> None:
        """Nobody listens any more."""
        for pump in self._pumps:
            pump.cancel()

    async def drain(self) -> list[int]:
        """The sizes of all that came, once all of it was told. Raises what the listener raised."""
        # a descriptor handed to somebody else may stay open for ever; a slow listener may take its time
        while self._pumps and (await asyncio.wait(self._pumps, timeout=_LINGER_SECONDS))[1]:
            if not any(stream.telling for stream in self._streams):
                self.stop()
        for pump in self._pumps:
            if not pump.cancelled():
                pump.result()
        return [stream.size for stream in self._streams]

    def _check(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and pump.exception() is not None:
            self._end("cancelled")


class _Stream:
    def __init__(self, name: Stream, path: Path, limit: int, on_output: OnOutput, end: Callable[[str], None]) -> None:
        self.name = name
        #: bytes that came, kept or not
        self.size = 0
        #: somebody is being told at this moment
        self.telling = False
        self._path: Path | None = path
        self._limit = limit
        self._on_output = on_output
        self._end = end

    async def pump(self, file: int) -> None:
        """Until the last writer has closed it. The caller closes `file`.

        No transport: under uvloop a transport closes the descriptor, and then the file object that it was made of
        closes the same number again.
        """
        os.set_blocking(file, False)
        while chunk := await _gathered(file):
            await self._take(chunk)

    async def _take(self, chunk: bytes) -> None:
        before = self.size
        self.size += len(chunk)
        if before < self._limit:
            await self._tell(chunk[: self._limit - before])
        if before <= self._limit < self.size:
            await self._tell(f"\n[skep: {self.name} beyond {self._limit:,} bytes is dropped]\n".encode())
        if before <= self._limit * _FLOOD < self.size:
            self._end("output")

    async def _tell(self, part: bytes) -> None:
        self.telling = True
        try:
            # a thread, as a disk that a task keeps busy would stop the worker's heart
            await asyncio.to_thread(self._write, part)
            if (taking := self._on_output(self.name, part)) is not None:
                await taking
        finally:
            self.telling = False

    def _write(self, part: bytes) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(part)
        except OSError as error:
            log.warning(
                "output of a run is not written any more", extra={"path": str(self._path), "reason": str(error)}
            )
            self._path = None


def _close(file: int, _: asyncio.Task[None]) -> None:
    os.close(file)


async def _gathered(file: int) -> bytes:
    """A full chunk, or what there is after a moment. Empty: the end."""
    chunk = await _read(file, _CHUNK)
    try:
        async with asyncio.timeout(_GATHER_SECONDS if chunk else None):
            while chunk and len(chunk) < _CHUNK and (more := await _read(file, _CHUNK - len(chunk))):
                chunk += more
    except TimeoutError:
        pass  # `_read` was waiting: it takes nothing before it returns
    return chunk


async def _read(file: int, size: int) -> bytes:
    """What is there, once there is something. The loop only watches the descriptor."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    while True:
        ready.clear()
        loop.add_reader(file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)
        try:
            return os.read(file, size)
        except BlockingIOError:
            continue


service_log = logging.getLogger("skep.runtime")

#: done in the folder where a command works, before it begins and when it has ended
InFolder = Callable[[Path], Awaitable[None]]
_DISK_SHARE, _DISK_LEAST, _DISK_MOST = 20, 0.2, 30.0


class _Run:
    def __init__(self, command: Command) -> None:
        self.command = command
        self.name = f"{command.task}-{command.attempt}"
        self.keeper: Keeping | None = None
        self.cancelled = False
        self.broke: RunEnded | None = None
        #: what the first process of an isolated run reported
        self.exited: dict[str, Any] = {}
        self.ended: asyncio.Future[RunEnded] = asyncio.get_running_loop().create_future()

    def settle(self, ended: RunEnded) -> None:
        if not self.ended.done():
            self.ended.set_result(ended)


class Runtime:
    def __init__(self, folder: Path, settings: Settings, clock: Clock, handler: Handler | None = None) -> None:
        """`handler` answers what tasks ask of their context; without one they cannot ask."""
        folder = folder.resolve()
        self._folders = Folders(folder, settings.task_history)
        self.folder = folder
        self._settings = settings
        self._planner: Planner | None = None
        self._clock = clock
        self._api = Api(handler) if handler else None
        self._runs: dict[str, _Run] = {}
        self._keeper: Keeping | None = None
        self._lease_until: float | None = None
        #: one at a time starts a keeper, or clears up after one
        self._turn = asyncio.Lock()
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """When this returns, nothing that an earlier process of this folder started is alive."""
        if sys.platform != "linux":
            raise Unavailable("tasks run on Linux only", hint="set run_tasks = false on this worker")
        await asyncio.to_thread(self.folder.mkdir, 0o700, parents=True, exist_ok=True)
        async with self._turn:
            await self._sweep()
        await asyncio.to_thread(self._folders.prune)
        if self._settings.run_tasks:
            found = await find(self._settings)
            self._planner = await asyncio.to_thread(Planner, self._settings, self.folder, found)
            if found.missing:
                service_log.warning("tasks cannot be isolated, so no command is run", extra={"reason": found.missing})

    @property
    def isolation(self) -> str:
        """What keeps tasks apart from the worker, such as `landlock+namespaces`; `none`; empty: it runs no tasks."""
        return self._planner.isolation.name if self._planner else ""

    async def run(
        self, command: Command, on_output: OnOutput, *, before: InFolder | None = None, after: InFolder | None = None
    ) -> RunEnded:
        """Whatever way this ends, also when it is cancelled: by then nothing of the command is alive.

        An error of `on_output` ends the run and is raised; so is one of `before` and, if the command did well, `after`.
        """
        commands.check(command)
        planner = self._checked(command)
        command = await asyncio.to_thread(commands.limited, command, self._settings, self.folder)
        run = _Run(command)
        if self._closed:
            raise Unavailable("the worker is stopping")
        if self._runs.setdefault(run.name, run) is not run:
            raise Conflict(f"attempt {command.attempt} of task {command.task} is running already")
        try:
            if (path := commands.found(command.argv[0])) is None:
                return commands.explained(RunEnded(reason="not_found"), command)
            return await self._in_folder(run, path, planner, on_output, before, after)
        finally:
            del self._runs[run.name]

    def _checked(self, command: Command) -> Planner:
        if self._planner is None:
            raise Unavailable("this worker runs no tasks", hint="set run_tasks = true on it")
        self._planner.isolation.check()
        if command.network and not self._settings.task_network:
            raise BadInput(
                f"task {command.task} asks for the network, and this worker does not allow it",
                hint="set task_network = true on the worker, or submit the task without network = true",
            )
        return self._planner

    async def cancel(self, task: str, attempt: int) -> None:
        """Asks it to end, and after its grace makes it; `run` tells when it has. Harmless when there is none."""
        if run := self._runs.get(f"{task}-{attempt}"):
            run.cancelled = True
            await self._end(run, "cancelled", run.command.grace)

    async def lease(self, until: float) -> None:
        """Commands may run until then, by `time.monotonic`. The keeper ends them when this process stands still."""
        self._lease_until = until
        if self._keeper is not None:
            await self._keeper.tell(msgspec.json.encode({"lease": until}))

    @property
    def running(self) -> list[tuple[str, int]]:
        return [(run.command.task, run.command.attempt) for run in self._runs.values()]

    async def close(self) -> None:
        """Ends every run, without grace."""
        self._closed = True
        for run in self._runs.values():
            run.cancelled = True
        async with self._turn:
            if self._keeper is not None:
                await self._keeper.close()
                self._lose(self._keeper)
        await asyncio.gather(*self._errands)
        if self._api:
            await self._api.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _in_folder(
        self,
        run: _Run,
        path: str,
        planner: Planner,
        on_output: OnOutput,
        before: InFolder | None,
        after: InFolder | None,
    ) -> RunEnded:
        command = run.command
        folder = await asyncio.to_thread(self._folders.make, command.task, command.attempt, self._clock.now())
        keep = True
        try:
            if before:
                await before(folder / "work")
            if planner.user:
                await asyncio.to_thread(self._folders.give, folder, *planner.user[:2])
            plan = planner.plan(command, folder)
            environment = commands.environment(command, folder) | {MARK: str(self.folder)}
            async with AsyncExitStack() as stack:
                if self._api:
                    inside = planner.isolation.backend != "none" and not command.network
                    environment |= await stack.enter_async_context(self._api.open(command, inside=inside))
                order = commands.order(command, run.name, path, folder, environment, plan)
                ended = await self._started(run, folder, order, on_output)
            if after:
                try:
                    await after(folder / "work")
                except SkepError as error:
                    if ended.ok:
                        raise
                    service_log.info("after %s, which had failed: %s", run.name, error.message)
            keep = not ended.ok
            return ended
        finally:
            await asyncio.shield(asyncio.to_thread(self._folders.leave, folder, keep=keep))

    async def _started(self, run: _Run, folder: Path, order: bytes, on_output: OnOutput) -> RunEnded:
        outputs = Outputs(folder, run.command.limits.output, on_output, lambda reason: self._end_soon(run, reason))
        try:
            await self._launch(run, order, outputs)
            watch = asyncio.create_task(self._watch_disk(run, folder))
            try:
                await asyncio.wait([run.ended])
            finally:
                watch.cancel()
        except BaseException:
            outputs.stop()
            await self._make_sure(run)
            raise
        stdout, stderr = await outputs.drain()
        ended = run.ended.result()
        # a short run may have ended between two looks
        if ended.ok and await self._is_beyond_disk(run, folder):
            ended = msgspec.structs.replace(ended, reason="disk")
        ended = commands.explained(ended, run.command)
        return msgspec.structs.replace(ended, stdout=stdout, stderr=stderr)

    async def _launch(self, run: _Run, order: bytes, outputs: Outputs) -> None:
        async with self._turn:
            if self._keeper is None and not self._closed:
                self._keeper = await self._new_keeper()
            keeper = self._keeper
        if run.cancelled or keeper is None:
            run.settle(RunEnded(reason="cancelled"))
            return
        run.keeper = keeper
        with outputs.open() as files:
            await keeper.tell(order, files)

    async def _make_sure(self, run: _Run) -> None:
        """Nothing of it is alive when this returns, however often we are cancelled meanwhile."""
        if run.keeper is None:
            return
        self._end_soon(run, "cancelled")
        cancelled = False
        while not run.ended.done():
            try:
                await asyncio.wait([run.ended])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _end(self, run: _Run, reason: str, grace: float) -> None:
        if run.keeper is not None and not run.ended.done():
            await run.keeper.tell(msgspec.json.encode({"end": run.name, "reason": reason, "grace": grace}))

    def _end_soon(self, run: _Run, reason: str) -> None:
        self._soon(self._end(run, reason, 0))

    async def _watch_disk(self, run: _Run, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if await self._is_beyond_disk(run, folder):
                await self._end(run, "disk", 0)
                return
            await asyncio.sleep(min(max((loop.time() - began) * _DISK_SHARE, _DISK_LEAST), _DISK_MOST))

    async def _is_beyond_disk(self, run: _Run, folder: Path) -> bool:
        limit = run.command.limits.disk
        return limit is not None and await asyncio.to_thread(size, folder) > limit

    async def _new_keeper(self) -> Keeping:
        started: list[Keeping] = []
        keeper = await Keeping.start(self.folder, self._hear, lambda: self._lose(started[0]))
        started.append(keeper)
        if self._lease_until is not None:
            await keeper.tell(msgspec.json.encode({"lease": self._lease_until}))
        return keeper

    def _hear(self, message: dict[str, Any], files: list[int]) -> None:
        listeners = [socket.socket(fileno=file) for file in files]
        for listener in listeners:
            listener.set_inheritable(False)
        if run := self._runs.get(message.get("broke", "")):
            run.broke = commands.broke(message)
        elif run := self._runs.get(message.get("exited", "")):
            run.exited = message
        elif run := self._runs.get(message.get("ended", "")):
            run.settle(run.broke or commands.ended(message, run.exited))
        elif (run := self._runs.get(message.get("listening", ""))) and self._api and listeners:
            self._soon(self._api.attach(run.command, listeners.pop()))
        for listener in listeners:
            listener.close()

    def _lose(self, keeper: Keeping) -> None:
        """A keeper has died; what it kept may not outlive it."""
        if self._keeper is keeper:
            self._keeper = None
        self._soon(self._recover(keeper))

    async def _recover(self, keeper: Keeping) -> None:
        try:
            async with self._turn:
                await keeper.close()
                await self._sweep()
        finally:
            for run in self._runs.values():
                if run.keeper is keeper:
                    run.settle(RunEnded(reason="cancelled" if self._closed else "lost"))

    async def _sweep(self) -> None:
        if ended := await end_left_overs(self.folder):
            service_log.warning("ended processes that had lost their keeper", extra={"processes": ended})

    def _soon(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
