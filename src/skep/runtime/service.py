"""The runtime: runs tasks as child processes of a worker, and leaves nothing behind.

async with Runtime(folder, settings, clock) as runtime:
    ended = await runtime.run(command, on_output)
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from skep.clock import Clock
from skep.config import Settings
from skep.errors import BadInput, Conflict, SkepError, Unavailable
from skep.model.run import Command, Ended
from skep.runtime import commands
from skep.runtime.api import Api, Handler
from skep.runtime.folders import Folders, size
from skep.runtime.isolation import Planner, find
from skep.runtime.keeping import MARK, Keeping
from skep.runtime.leftovers import end_left_overs
from skep.runtime.output import OnOutput, Outputs

log = logging.getLogger("skep.runtime")

#: done in the folder where a command works, before it begins and when it has ended
InFolder = Callable[[Path], Awaitable[None]]
_DISK_SHARE, _DISK_LEAST, _DISK_MOST = 20, 0.2, 30.0


class _Run:
    def __init__(self, command: Command) -> None:
        self.command = command
        self.name = f"{command.task}-{command.attempt}"
        self.keeper: Keeping | None = None
        self.cancelled = False
        self.broke: Ended | None = None
        #: what the first process of an isolated run reported
        self.exited: dict[str, Any] = {}
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def settle(self, ended: Ended) -> None:
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
                log.warning("tasks cannot be isolated, so no command is run", extra={"reason": found.missing})

    @property
    def isolation(self) -> str:
        """What keeps tasks apart from the worker, such as `landlock+namespaces`; `none`; empty: it runs no tasks."""
        return self._planner.isolation.name if self._planner else ""

    async def run(
        self, command: Command, on_output: OnOutput, *, before: InFolder | None = None, after: InFolder | None = None
    ) -> Ended:
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
                return commands.explained(Ended(reason="not_found"), command)
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
    ) -> Ended:
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
                    log.info("after %s, which had failed: %s", run.name, error.message)
            keep = not ended.ok
            return ended
        finally:
            await asyncio.shield(asyncio.to_thread(self._folders.leave, folder, keep=keep))

    async def _started(self, run: _Run, folder: Path, order: bytes, on_output: OnOutput) -> Ended:
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
            run.settle(Ended(reason="cancelled"))
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
                    run.settle(Ended(reason="cancelled" if self._closed else "lost"))

    async def _sweep(self) -> None:
        if ended := await end_left_overs(self.folder):
            log.warning("ended processes that had lost their keeper", extra={"processes": ended})

    def _soon(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
