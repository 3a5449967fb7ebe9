"""The kind `command`: a program in a child process. Its output is told while it runs, its calls go to its context."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput
from skep.benchmarks.worker import meant
from skep.config.settings import Settings
from skep.packages.api import Manifest
from skep.packages.service import WorkerPackagesPackages as Packages
from skep.results.api import MACHINE, Draft
from skep.results.fields import checked
from skep.results.worker import Recording, found
from skep.rpc.messages import AnswerBody, AskBody
from skep.runtime.runtime import Runtime
from skep.runtime.task_api import TaskCall
from skep.tasks.model import Call, Chunk, Command, Limits, Reply, Run, Stream, TaskHold, Written
from skep.tasks.worker import TaskFailed

log = logging.getLogger(__name__)

Ask = Callable[[AskBody], Awaitable[AnswerBody]]


class Commanding:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        clock: Clock,
        ask: Ask,
        recording: Recording,
        packages: Packages,
        mirror: Callable[[str], Path],
    ) -> None:
        self._meant = partial(meant, settings=settings, mirror=mirror)
        self._clock = clock
        self._recording = recording
        self._packages = packages
        self._ask = ask
        self.runtime = Runtime(folder, settings, clock, self._called)
        self._results: dict[TaskHold, Any] = {}

    async def do(self, run: Run, code: str = "") -> Any:
        hold, spec = (run.task, run.attempt), run.spec
        properties = {MACHINE: self._recording.machine, **spec.properties}
        command = Command(
            *(*hold, run.context, spec.argv, spec.environment, properties, spec.limits), network=spec.network
        )
        package = await self._packages.find(run) if spec.package else None
        if package:
            command = _of_package(command, spec.command, package.manifest)
        command = self._meant(command, run, code)

        async def before(work: Path) -> None:
            if package:
                await self._packages.unpack(run, package, work)

        async def after(work: Path) -> None:
            await self._recording.add(hold, await asyncio.to_thread(found, work, spec.results))

        tell = _Teller(run, self._clock, self._ask).tell
        running = asyncio.create_task(self.runtime.run(command, tell, before=before, after=after))
        try:
            ended = await asyncio.shield(running)
        except asyncio.CancelledError:
            await self.runtime.cancel(*hold)  # it is asked to end, and after its grace it is made to
            await asyncio.wait([running])
            self._recording.forget(hold)
            raise
        finally:
            result = self._results.pop(hold, None)
        await self._recording.settled(hold)
        if ended.reason == "lease":
            raise asyncio.CancelledError  # it is not its fault, and another worker has it by now
        if not ended.ok:
            raise TaskFailed(ended.message, ended.code)
        return result

    async def _called(self, call: TaskCall) -> Any:
        match call.verb:
            case "result.set":
                if not isinstance(call.body, dict) or "value" not in call.body:
                    raise BadInput('the body should be {"value": …}')
                self._results[call.task, call.attempt] = call.body["value"]
                return {}
            case "results.add":
                await self._recording.add((call.task, call.attempt), _drafts(call.body))
                return {}
            case "log.add":
                body = call.body if isinstance(call.body, dict) else {}
                level = logging.getLevelNamesMapping().get(str(body.get("level", "info")).upper(), logging.INFO)
                log.log(level, "%s", body.get("text", ""), extra={"task": call.task})
                return {}
            case _:
                reply = await self._ask(Call(call.task, call.attempt, call.verb, call.name, call.body, call.wait))
                return reply.value if isinstance(reply, Reply) else None


def _of_package(command: Command, name: str, manifest: Manifest) -> Command:
    found = manifest.commands
    name = name or (next(iter(found)) if len(found) == 1 else "")
    if name not in found:
        raise TaskFailed(f"{manifest.ref} has no command {name!r}; it has {', '.join(found) or 'none'}")
    return msgspec.structs.replace(
        command,
        argv=found[name] + command.argv,
        environment=manifest.environment | command.environment,
        limits=manifest.limits if command.limits == Limits() else command.limits,
    )


def _drafts(body: Any) -> list[Draft]:
    """Whether there are such kinds, the coordinator knows."""
    try:
        drafts = msgspec.convert(body if isinstance(body, list) else [body], list[Draft])
    except msgspec.ValidationError as error:
        raise BadInput(f"this is no result: {error}", hint='{"metric": "time", "value": 1.25, "unit": "s"}') from None
    return [checked(draft, (draft.kind,)) for draft in drafts]


class _Teller:
    """Each piece is with the coordinator before the next is read: a slow link slows the task, and fills no memory."""

    def __init__(self, run: Run, clock: Clock, ask: Ask) -> None:
        self._run = run
        self._clock = clock
        self._ask = ask
        self._n = 0

    async def tell(self, stream: Stream, body: bytes) -> None:
        run, n = self._run, self._n
        self._n += 1
        await self._ask(Written((Chunk(run.task, run.context, run.attempt, n, stream, self._clock.now(), body),)))
