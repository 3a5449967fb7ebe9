"""A small Skep in this process that has done something of everything: what answers are recorded from.

A coordinator on SQLite with its loops, an HTTP server, one real worker with a manager, and a host of git repositories
whose commits are always the same. Commands of the script run in order, and what each printed is kept.
"""

import asyncio
import io
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import uvicorn

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.cli.main import main
from skep.config.settings import Settings
from skep.dataone.source_type import DataoneKind
from skep.dataone.testing import MemberNode
from skep.interfaces.http.app import create_app
from skep.processes.worker import Worker
from skep.sources.git.source_type import GitKind
from skep.sources.source_type import Kind
from skep.testing.server import free_port
from tests.fleet.yard import until
from tests.support.forge import Forge, Repo
from tests.tasks.house import TOKEN, Engine, coordinator

from .lines import plain

_TOKEN = re.compile(r"\bskepm?_[a-z2-7]{40,}\b")
_HEX = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,64}\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_AGO = re.compile(r"\b(?:now|in N \w+|N \w+ ago)\b")
FILES: Mapping[str | bytes, bytes | str | None] = {
    "README.md": b"# Garden\n\nBees and honey.\n",
    "src/hive.py": b"def find_honey(hive):\n    return hive['honey']\n",
    "LICENSE": b"Apache License\nVersion 2.0, January 2004\n",
    "docs/plan.txt": b"nectar in spring\n",
}


class Ran(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


class Scene:
    def __init__(self, engine: Engine, app: Any, folder: Path, forge: Forge, node: MemberNode, url: str) -> None:
        self.engine = engine
        self.core = engine.core
        self.app = app
        self.folder = folder
        self.forge = forge
        self.node = node
        self.garden: Repo
        self.stop_worker: Callable[[], Awaitable[None]]
        self.url = url
        self.admin = self.reader = self.writer = ""
        #: what placeholders of the script stand for
        self.names: dict[str, str] = {}

    async def start(self) -> None:
        self.admin = (await self.core.access.create(SYSTEM, "admin", ("admin",))).token
        self.reader = (await self.core.access.create(SYSTEM, "reader", ("read",))).token
        self.writer = (await self.core.access.create(SYSTEM, "writer", ("read", "write"))).token

    def http(self, token: str = "", **headers: str) -> httpx.AsyncClient:
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    def plain(self, text: str) -> str:
        """Without what differs from run to run."""
        paths = {str(self.folder): "FOLDER", str(Path.cwd()): "CHECKOUT"}
        tokens = {one: "TOKEN" for one in (self.admin, self.reader, self.writer) if one}
        return plain(text, tokens | paths)

    def rounded(self, text: str) -> str:
        """Also without numbers, and with single spaces: for tables and sentences."""
        text = _NUMBER.sub("N", _HEX.sub("HEX", _TOKEN.sub("TOKEN", self.plain(text))))
        return " ".join(_AGO.sub("AGO", text).split())

    async def cli(self, *args: str, token: str = "", stdin: str = "", url: str = "") -> Ran:
        environment = {"SKEP_URL": url or self.url, "SKEP_TOKEN": token, "SKEP_CONFIG": os.devnull}
        environment |= {"XDG_STATE_HOME": str(self.folder / "state"), "COLUMNS": "100000"}
        return await asyncio.to_thread(_run, args, environment, stdin)


def _run(args: tuple[str, ...], environment: Mapping[str, str], stdin: str) -> Ran:
    """The command line in a thread of this process: it finds other streams and variables than ours."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    before = sys.stdin, sys.stdout, sys.stderr, dict(os.environ)
    for name in [name for name in os.environ if name.startswith("SKEP_")]:
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if value})
    sys.stdin, sys.stdout, sys.stderr = given, out, err
    try:
        code = main(args)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 2
    finally:
        sys.stdin, sys.stdout, sys.stderr = before[:3]
        os.environ.clear()
        os.environ.update(before[3])
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Ran(code, *texts)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Scene]:
    data, port = folder / "data", free_port()
    data.mkdir(parents=True)
    chosen: dict[str, Any] = {
        "allow_networks": ("127.0.0.0/8",),
        "listen": f"127.0.0.1:{port}",
        "dataone_copies_for": "http://127.0.0.1:9/cn",
    }
    with Forge(folder / "forge") as forge, MemberNode("urn:node:Golden", clock=lambda: 1e9) as node:
        async with coordinator(data, "sqlite:", **chosen) as engine:
            app = create_app(engine.core, Settings(data=str(data), **chosen))
            scene = Scene(engine, app, folder, forge, node, f"http://127.0.0.1:{port}")
            async with _served(app, port), _working(engine, data) as stop_worker:
                scene.stop_worker = stop_worker
                await scene.start()
                await until(lambda: engine.core.workers.list(SYSTEM))
                yield scene


@asynccontextmanager
async def _served(app: Any, port: int) -> AsyncIterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = server.force_exit = True
        await serving


@asynccontextmanager
async def _working(engine: Engine, data: Path) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A worker with a manager, in this process."""
    settings = Settings(
        *(str(data), ("worker", "manager"), "golden"),
        allow_networks=("127.0.0.0/8",),
        task_commands=("*",),
        task_packages=("*",),
        task_variables=("WHO",),
        labels=("fast",),
        task_slots=2,
        index_processes=1,
    )
    clock = SystemClock()
    kinds: dict[str, Kind] = {"git": GitKind(settings, data, clock), "dataone": DataoneKind(settings, data, clock)}
    running = asyncio.create_task(Worker(settings, data, engine.link, TOKEN, clock, kinds).run())

    async def stop() -> None:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    try:
        yield stop
    finally:
        await stop()
