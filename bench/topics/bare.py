"""Skep's own application, guard and all, with a log that stores nothing: what the publish route itself costs."""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvicorn
import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.interfaces.http.app import create_app
from skep.interfaces.http.asgi import HeldProtocol
from skep.processes.build import open_rooms
from skep.storage.topic_log import RowsLog
from skep.topics.api import Draft, Part
from skep.topics.service import Topics


class Nowhere(RowsLog):
    _next = 0

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]:
        self._next += len(drafts)
        return list(range(self._next - len(drafts), self._next))


async def main(data: Path) -> None:
    data.mkdir()
    settings = Settings(data=str(data), listen="127.0.0.1:0")
    clock = SystemClock()
    async with open_rooms(settings, clock, secrets.token_hex(32)) as rooms:
        db = rooms.core.topics.db
        topics = Topics(db, Nowhere(db), clock, settings.message_limit)
        app = create_app(msgspec.structs.replace(rooms.core, topics=topics), settings)
        await uvicorn.Server(uvicorn.Config(app, port=0, access_log=False, lifespan="off", http=HeldProtocol)).serve()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1])))
