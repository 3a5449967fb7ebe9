"""The manager role by itself: takes index requests and folds their contexts, and speaks only the link.

Started like a worker: what it needs to know comes on the first line of stdin, and it stops when stdin ends.
"""

import asyncio
import sys

import msgspec
import uvloop

from skep.clock import SystemClock
from skep.manager.service import manage
from skep.roles.child import Start
from skep.roles.logs import set_up_logs


def main() -> None:
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
    set_up_logs(start.settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_manage(start))


async def _manage(start: Start) -> None:
    managing = asyncio.create_task(manage(start.link, start.token, SystemClock()))
    await asyncio.wait(
        [managing, asyncio.ensure_future(asyncio.to_thread(sys.stdin.buffer.read))], return_when="FIRST_COMPLETED"
    )
    managing.cancel()
    await asyncio.gather(managing, return_exceptions=True)


if __name__ == "__main__":
    main()
