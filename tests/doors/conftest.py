"""The HTTP door over real rooms, in process and without a worker; and, for what needs mirrors, a whole running Skep."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from skep.base.caller import SYSTEM, Scope
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.interfaces.core import Core
from skep.interfaces.http.app import create_app
from skep.processes.build import open_rooms
from tests.house.running import RunningSkep
from tests.support.forge import Forge

from .chromium import Tab, chromium

HOME = "http://127.0.0.1:7337"


class Door:
    """A core, and clients of its door."""

    def __init__(self, core: Core, app: Any) -> None:
        self.core = core
        self.app = app

    def client(self, token: str = "", **headers: str) -> httpx.AsyncClient:
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=HOME, headers=headers)

    async def token(self, *scopes: Scope) -> str:
        return (await self.core.access.create(SYSTEM, "tester", scopes)).token


class OpenDoor(Protocol):
    def __call__(self, **settings: Any) -> AbstractAsyncContextManager[Door]: ...


@pytest.fixture
def open_door(tmp_path: Path) -> OpenDoor:
    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Door]:
        wanted = Settings(data=str(tmp_path), database="memory:", allow_networks=("127.0.0.0/8",), **settings)
        async with open_rooms(wanted, SystemClock(), "w" * 64) as rooms:
            yield Door(rooms.core, create_app(rooms.core, wanted))

    return opened


@pytest.fixture
async def door(open_door: OpenDoor) -> AsyncIterator[Door]:
    async with open_door() as opened:
        yield opened


@pytest.fixture
async def writer(door: Door) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who may publish, and a topic `news` to publish on."""
    async with door.client(await door.token("read", "write")) as client:
        assert (await client.post("/api/v1/topics", json={"name": "news"})).status_code == 201
        yield client


@pytest.fixture(scope="session")
def door_forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with Forge(tmp_path_factory.mktemp("door-forge")) as running:
        yield running


@pytest.fixture(scope="session")
def full_skep(tmp_path_factory: pytest.TempPathFactory, door_forge: Forge) -> Iterator[RunningSkep]:
    """A running Skep with two mirrored sources, one of them private, both with awkward names in them."""
    running = RunningSkep(tmp_path_factory.mktemp("door-skep") / "data")
    try:
        door_forge.create("odd/names", ODD_FILES)
        running.cli("source", "add", door_forge.url("odd/names"), "--wait")
        door_forge.create("top/secret", {"plan.txt": b"honeypot plans\n"})
        running.cli("source", "add", door_forge.url("top/secret"), "--private", "--wait")
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    """What a page complains of in the console fails the test."""
    browser.size(1280, 900)
    browser.console.clear()
    yield browser
    assert browser.console == []


ODD_FILES: dict[str | bytes, bytes | str] = {
    "README.md": b"# Odd names\n<script>alert('readme')</script>\n",
    "src/main.py": b"def find_honey(hive):\n    return hive['honey']  # sweet honey\n",
    "<script>alert(1)</script>.txt": b"honey <script>alert(2)</script>\n",
    "a b#c?d%41&e.txt": b"honey with marks\n",
    "-x": b"honey like a flag\n",
    "ünïcode/ß.txt": "honey für alle\n".encode(),
    "new\nline.txt": b"honey on two lines\n",
    "bytes.bin": b"\x00\x01\x02honey",
    "link": "src/main.py",
    "long.txt": b"\n" * 29_999 + b"nectar at the end\n",
}
