"""A worker or a manager by itself, on a machine of its own: no port, no database of others, only the link."""

import asyncio
import socket
from pathlib import Path

import msgspec
import uvloop

from skep.clock import SystemClock
from skep.config import Settings
from skep.fleet.servers import keep_id
from skep.link.dial import Dial
from skep.link.join import joined
from skep.link.lines import LineBuffer
from skep.manager.service import manage
from skep.roles.folder import locked
from skep.roles.logs import set_up_logs
from skep.roles.stopping import on_signals, run_until
from skep.roles.worker import work


def main(settings: Settings) -> None:
    """Until SIGTERM or Ctrl-C. Ends with an error when a newer process of the same member has come."""
    settings = msgspec.structs.replace(settings, data=str(Path(settings.data).resolve()))
    dial, token = joined(settings)
    lines = set_up_logs(settings.log_level)
    folder = Path(settings.data) / ("worker" if "worker" in settings.roles else "manager")
    with locked(folder), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, folder, dial, token, lines))


async def _run(settings: Settings, folder: Path, dial: Dial, token: str, lines: LineBuffer) -> None:
    stop = on_signals()
    if "worker" in settings.roles:
        await run_until(stop, work(settings, dial, token, lines))
    else:
        clock = SystemClock()
        name = settings.name or socket.gethostname()
        # a manager keeps nothing but who it is: its token is bound to that
        await run_until(stop, manage(dial, token, clock, keep_id(folder, "man", clock), name, lines))
