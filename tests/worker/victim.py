"""A worker process to be killed: `python victim.py DATA LINK PLACE`. At PLACE it prints a line and hangs."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes import worker
from skep.rpc.messages import Fetched, Outcome
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure, Held
from skep.sources.polling.store import Store
from skep.sources.source_type import Moved, Report

SETTINGS = Settings(allow_networks=("127.0.0.0/8",), poll_min=0.05, poll_max=0.2, beat_every=0.2)


async def here(place: str) -> None:
    if sys.argv[3] == place:
        sys.stdout.write("here\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


class Victim(GitKind):
    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        await here("before fetch")
        versions = await super().fetch(source, moved, report)
        await here("after fetch")
        return versions


class Silent(Store):
    """Tells into the outbox, and never hears of it again."""

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        found = await super().outcomes(after, limit)
        if any(isinstance(outcome.body, Fetched) and not outcome.body.first for outcome in found):
            await here("after tell")
        return found


async def main() -> None:
    data, clock = Path(sys.argv[1]), SystemClock()
    kinds = {"git": Victim(SETTINGS, data, clock)}
    await worker.Worker(SETTINGS, data, sys.argv[2], "token", clock, kinds).run()


if __name__ == "__main__":
    worker.Store = Silent  # type: ignore[attr-defined]
    asyncio.run(main())
