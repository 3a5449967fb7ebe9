"""Which tests are fast: those that start no server. They need nothing but Python and git.

The marker `servers` is set when the tests are collected. The names that a test and its fixtures use are followed, also
through helpers of the tests. If they lead to something that starts a server or a process, the test is marked. A fast
test that starts a process other than git nevertheless fails: an audit hook sees each process that is started.
"""

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

MARKER = "servers"
#: modules whose use means that a server or another process is started
_STARTERS = (
    "subprocess",
    "multiprocessing",
    "skep.benchmarks.measure",
    "skep.fleet.cli",
    "skep.interfaces.web.highlighter",
    "skep.base.child_process",
    "skep.processes.",
    "skep.runtime.isolation",
    "skep.runtime.supervisor_client",
    "skep.runtime.runtime",
    "skep.sources.credentials",
    "tests.support.gmn",
    "tests.support.nats",
    "tests.support.opensearch",
    "tests.support.postgres",
    "tests.support.s3",
    "skep.testing.server",
    "skep.base.child_process",
    "skep.indexing.build",
)
#: of those, what starts nothing
_HARMLESS = ("skep.processes.build", "skep.processes.engines")
_HELPERS = ("tests.", "skep.testing.")
#: functions of asyncio and os that start a process
_CALLS = {"create_subprocess_exec", "create_subprocess_shell", "fork", "execv", "posix_spawn"}
#: values of parameters that name a server
_SERVERS = ("postgres", "nats", "opensearch", "elasticsearch", "s3")
_ALLOWED = ("git", "ssh-keygen")


def mark(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _is_served(item):
            item.add_marker(MARKER)


def _is_served(item: pytest.Function) -> bool:
    params: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    if any(server in str(value) for value in params.values() for server in _SERVERS):
        return True
    found = item.session._fixturemanager.getfixturedefs
    # a fixture with parameters chooses its server by them, which was looked at above
    fixtures = [one.func for name in item.fixturenames if name not in params for one in found(name, item) or ()]
    return any(_starts(one) for one in [item.obj, *fixtures])


def _starts(thing: Any) -> bool:
    return _leads_to_start(inspect.unwrap(getattr(thing, "__func__", thing)))


@cache
def _leads_to_start(thing: Any) -> bool:
    seen: set[int] = set()
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        home = one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None) or ""
        if home.startswith(_STARTERS) and not home.startswith(_HARMLESS):
            return True
        if isinstance(one, ModuleType | FunctionType | type) and not home.startswith((*_HELPERS, "test")):
            continue
        if isinstance(one, FunctionType):
            names = set(_names(one.__code__))
            if names & _CALLS:
                return True
            left += [one.__globals__[name] for name in names if name in one.__globals__]
            left += [getattr(one, "__wrapped__", None)]
        elif isinstance(one, type):
            left += [getattr(part, "__func__", part) for part in vars(one).values()]
            left += one.__bases__
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


class Watch:
    """Refuses processes other than git while it is on. An audit hook stays until the interpreter ends."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or event not in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork"):
            return
        program = args[1][0] if event == "subprocess.Popen" and args[1] else args[0] if args else "a fork"
        name = Path(program.decode() if isinstance(program, bytes) else str(program)).name
        if name not in _ALLOWED:
            self.on = False  # pytest itself may go on
            pytest.fail(
                f"a fast test starts {name!r}: mark it with pytest.mark.{MARKER}, or teach tests/tiers.py", False
            )
