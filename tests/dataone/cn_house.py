"""A Coordinating Node that is served for a test: real rooms, a real port, and DataONE's own client in front of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from skep.base.caller import SYSTEM, Scope
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.dataone.encoding import write_form
from skep.dataone.testing import MemberNode
from skep.interfaces.core import Core
from skep.interfaces.http.app import create_app
from skep.processes.build import open_rooms
from skep.testing.server import free_port
from tests.support.dataone_objects import put_object
from tests.support.gmn import OfficialClient

from .objects import NODE, meta_of


class Served:
    def __init__(self, core: Core, url: str) -> None:
        self.core = core
        self.url = url

    @property
    def base(self) -> str:
        return f"{self.url}/cn"

    async def put(self, pid: str, body: bytes | None = b"data", *, node: str = NODE, **more: Any) -> None:
        given = meta_of(pid, body or b"", **more)
        assert await put_object(self.core.dataone.store, given, body, node) == "new"

    async def token(self, subject: str, *scopes: Scope) -> str:
        return (await self.core.access.create(SYSTEM, subject, scopes or ("read",))).token

    def client(self, token: str = "", **headers: str) -> httpx.AsyncClient:
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    async def call(self, method: str, path: str, parts: dict[str, str | bytes], token: str) -> httpx.Response:
        media, body = write_form(parts)
        async with self.client(token) as client:
            return await client.request(method, path, content=body, headers={"content-type": media})

    async def official(self, name: str, *args: Any, token: str = "", version: int = 2, **more: Any) -> Any:
        """One call of the official client, which fails on whatever its schemas do not allow."""

        def work() -> Any:
            with OfficialClient(self.base, token=token, version=version) as client:
                return client.call(name, *args, **more)

        return await asyncio.to_thread(work)

    async def approve(self, node: MemberNode) -> None:
        await self.core.dataone.nodes.register(SYSTEM, node.document())
        await self.core.dataone.nodes.approve(SYSTEM, node.id)

    async def solr(self, token: str = "", **params: Any) -> Any:
        async with self.client(token) as client:
            answer = await client.get("/cn/v2/query/solr/", params={"wt": "json", **params})
            assert answer.status_code == 200, answer.text
            return json.loads(answer.content)


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    port = free_port()
    wanted = Settings(
        data=str(folder), database="memory:", listen=f"127.0.0.1:{port}", allow_networks=("127.0.0.0/8",), **settings
    )
    async with open_rooms(wanted, SystemClock(), "w" * 64) as rooms:
        config = uvicorn.Config(
            create_app(rooms.core, wanted), host="127.0.0.1", port=port, log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield Served(rooms.core, f"http://127.0.0.1:{port}")
        finally:
            server.should_exit = True
            await serving
