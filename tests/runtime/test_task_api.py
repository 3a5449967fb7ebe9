"""What a task asks of its context: over HTTP from any language, and by `skep.task` from Python."""

import asyncio
import http.client
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import Conflict
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.runtime.task_api import Api, TaskCall
from skep.tasks.model import Command
from tests.runtime.conftest import DEADLINE, Told, until

COMMAND = Command("tsk_1", 2, "ctx_1", ("true",))


class Context:
    """The other end, as simple as can be."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Any] = {}
        self.calls: list[TaskCall] = []
        self.waiting = 0
        self.changed = asyncio.Condition()

    async def __call__(self, call: TaskCall) -> Any:
        self.calls.append(call)
        noun, verb = call.verb.split(".")
        key = (noun, call.name)
        if verb == "get":
            return await self._get(noun, key, call.wait)
        async with self.changed:
            self.changed.notify_all()
            if noun == "task":
                return {"id": "tsk_new"}
            if call.verb == "checkpoint.set" and key in self.values:
                raise Conflict(f"checkpoint {call.name} is set already", hint="it is set once")
            if call.verb == "latch.down":
                self.values[key] -= 1
                return {"count": self.values[key]}
            self.values[key] = call.body["count"] if noun == "latch" else call.body.get("value", call.body)
            return {}

    async def _get(self, noun: str, key: tuple[str, str], wait: float) -> Any:
        def there() -> bool:
            return self.values.get(key) == 0 if noun == "latch" else key in self.values

        self.waiting += 1
        try:
            async with asyncio.timeout(wait or None), self.changed:
                while wait and not there():
                    await self.changed.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        value = self.values.get(key)
        return {"count": value} if noun == "latch" else {"set": key in self.values, "value": value}


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
async def runtime(tmp_path: Path, context: Context) -> AsyncIterator[Runtime]:
    async with Runtime(tmp_path / "runtime", Settings(), SystemClock(), context) as runtime:
        yield runtime


def python(code: str, task: str = "tsk_1") -> Command:
    # not isolated: a task imports skep from where its Python finds it
    return Command(task, 1, "ctx_1", (sys.executable, "-c", code), properties={"size": "3"})


async def run(runtime: Runtime, command: Command) -> bytes:
    told = Told()
    async with asyncio.timeout(DEADLINE):
        end = await runtime.run(command, told)
    assert end.ok, told.stderr.decode()
    return told.stdout


async def test_the_python_module(runtime: Runtime, context: Context) -> None:
    code = """
from skep import task
from skep.base.errors import Conflict
print(task.id, task.attempt, task.context, task.properties["size"])
print(task.checkpoint("a b ü").get())
task.checkpoint("address").set({"port": 1})
print(task.checkpoint("address").get(), task.checkpoint("address").wait(timeout=1))
try: task.checkpoint("address").set(2)
except Conflict as error: print(error.message, "|", error.hint)
latch = task.latch("ready")
print(latch.count())
latch.set(1)
print(latch.count(), latch.down())
latch.wait(5)
task.state["k"] = [1, None]
print(task.state["k"], task.state.get("none", 7))
print(task.add("index", source="s"), task.add(["echo", "x"]))
task.result({"seconds": 1.5})
task.log("hello", level="warning")
try: task.checkpoint("never").wait(timeout=0.05)
except TimeoutError as error: print("late")
"""
    assert (await run(runtime, python(code))).decode().splitlines() == [
        "tsk_1 1 ctx_1 3",
        "None",
        "{'port': 1} {'port': 1}",
        "checkpoint address is set already | it is set once",
        "None",
        "1 0",
        "[1, None] 7",
        "tsk_new tsk_new",
        "late",
    ]
    assert context.calls[0] == TaskCall("tsk_1", 1, "ctx_1", "checkpoint.get", "a b ü", None, 0.0)
    assert context.values[("result", "")] == {"seconds": 1.5}
    assert context.values[("log", "")] == {"text": "hello", "level": "warning"}
    assert [call.body for call in context.calls if call.verb == "task.add"] == [
        {"kind": "index", "source": "s"},
        {"argv": ["echo", "x"]},
    ]


async def test_tasks_wait_for_each_other(runtime: Runtime) -> None:
    waiter = python("from skep import task; print(task.checkpoint('go').wait())", task="a")
    waiting = asyncio.create_task(run(runtime, waiter))
    await run(runtime, python("from skep import task; task.checkpoint('go').set('now')", task="b"))
    assert await waiting == b"now\n"


async def test_a_waiting_request_ends_with_its_run(runtime: Runtime, context: Context) -> None:
    command = python("from skep import task; task.checkpoint('never').wait()")
    running = asyncio.create_task(runtime.run(command, lambda *_: None))
    await until(lambda: context.waiting)
    await runtime.cancel("tsk_1", 1)
    await running
    await until(lambda: not context.waiting)


async def test_outside_of_a_task_it_says_so() -> None:
    code = "from skep import task; task.result(1)"
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=False)
    assert b"this process is not a task of Skep" in done.stderr


async def test_the_module_is_quick_to_import() -> None:
    heavy = ("urllib.request", "msgspec", "asyncio")
    code = f"import sys; from skep import task; print([name for name in {heavy} if name in sys.modules])"
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


async def ask(
    access: dict[str, str], method: str, path: str, body: bytes | None = None, token: str | None = None
) -> tuple[int, Any]:
    def go() -> tuple[int, Any]:
        line = http.client.HTTPConnection(access["SKEP_API"].removeprefix("http://"), timeout=DEADLINE)
        try:
            line.request(method, path, body, {"Authorization": f"Bearer {token or access['SKEP_TOKEN']}"})
            answer = line.getresponse()
            return answer.status, json.load(answer)
        finally:
            line.close()

    return await asyncio.to_thread(go)


@pytest.fixture
async def api(context: Context) -> AsyncIterator[Api]:
    api = Api(context)
    yield api
    await api.close()


async def test_what_is_refused(api: Api) -> None:
    async with api.open(COMMAND) as access:
        for method, path, body, status, code in (
            ("GET", "/nothing", None, 404, "not_found"),
            ("GET", "/", None, 404, "not_found"),
            ("DELETE", "/state/a", None, 404, "not_found"),
            ("GET", "/checkpoints", None, 404, "not_found"),
            ("GET", "/checkpoints/", None, 404, "not_found"),
            ("GET", "/checkpoints/a%2Fb", None, 400, "bad_input"),
            ("GET", "/checkpoints/a%00b", None, 400, "bad_input"),
            ("GET", f"/checkpoints/{'x' * 201}", None, 400, "bad_input"),
            ("GET", "/checkpoints/a?wait=soon", None, 400, "bad_input"),
            ("GET", "/checkpoints/a?wait=-1", None, 400, "bad_input"),
            ("GET", "/checkpoints/a?wait=nan", None, 400, "bad_input"),
            ("PUT", "/state/a", b"{", 400, "bad_input"),
            ("PUT", "/state/a", b'"' + b"x" * 1_000_000 + b'"', 413, "too_large"),
        ):
            found, answer = await ask(access, method, path, body)
            assert (found, answer["error"]["code"]) == (status, code), path
        assert (await ask(access, "GET", "/state/a", token="wrong"))[0] == 401
    assert (await ask(access, "GET", "/state/a"))[0] == 401, "a token ends with its run"


async def test_an_error_of_the_handler_is_not_told(api: Api, context: Context) -> None:
    async with api.open(COMMAND) as access:
        # a latch that was never set, and a handler that does not look
        status, answer = await ask(access, "POST", "/latches/x/down")
    assert (status, answer["error"]["code"]) == (500, "internal")


async def test_each_token_speaks_for_its_own_run(api: Api, context: Context) -> None:
    other = Command("tsk_2", 1, "ctx_2", ("true",))
    async with api.open(COMMAND) as one, api.open(other) as two:
        await asyncio.gather(ask(one, "GET", "/state/a"), ask(two, "GET", "/state/a"))
    assert {(call.task, call.attempt, call.context) for call in context.calls} == {
        ("tsk_1", 2, "ctx_1"),
        ("tsk_2", 1, "ctx_2"),
    }
