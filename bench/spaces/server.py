"""A coordinator of its own for the bench: the rooms as `skep up` opens them, and the link on a unix socket.

PYTHONPATH=. python bench/spaces/server.py DATA SOCKET TOKEN
"""

import asyncio
import sys

import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.build import open_rooms
from skep.rpc.server import LinkServer


async def main(data: str, socket: str, token: str) -> None:
    settings = Settings(data=data)
    async with open_rooms(settings, SystemClock(), token) as rooms:
        link = LinkServer(rooms.desk, beat_every=settings.beat_every)
        await link.start(f"unix:{socket}")
        print("ready", flush=True)
        # until the bench closes our stdin
        await asyncio.to_thread(sys.stdin.read)
        await link.stop()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
