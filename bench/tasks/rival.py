"""procrastinate, asked for the same: jobs that do nothing, stored in PostgreSQL, done by another process.

PYTHONPATH=. python bench/tasks/rival.py URL CONCURRENCY JOBS|idle    (the worker)
"""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import procrastinate


def app_on(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(name="noop")
    async def noop(sent: float = 0.0) -> None:
        if sent:
            print(time.time() - sent, flush=True)

    return app


class Rival:
    def __init__(self, url: str) -> None:
        self._url = url
        self._app = app_on(url)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rival"]:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()
            yield self

    async def rate(self, concurrency: int, jobs: int) -> float:
        """Jobs a second, as the worker counts them from its first to its last."""
        await self._app.configure_task("noop").batch_defer_async(*({} for _ in range(jobs)))
        return float(await asyncio.to_thread(subprocess.check_output, self._command(concurrency, str(jobs))))

    async def latencies(self, count: int) -> list[float]:
        """Seconds from the call of defer to the beginning of the job; nothing else is under way."""
        command = self._command(1, "idle")
        worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert worker.stdout is not None
        try:
            await worker.stdout.readline()
            found = []
            for _ in range(count):
                await self._app.configure_task("noop").defer_async(sent=time.time())
                found.append(float(await worker.stdout.readline()))
                await asyncio.sleep(0.02)
            return found
        finally:
            worker.kill()
            await worker.wait()

    def _command(self, concurrency: int, what: str) -> list[str]:
        return [sys.executable, str(Path(__file__)), self._url, str(concurrency), what]


async def work(url: str, concurrency: int, what: str) -> None:
    logging.disable()
    app = app_on(url)
    async with app.open_async():
        if what == "idle":
            print("ready", flush=True)
            await app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
            return
        began = time.perf_counter()
        await app.run_worker_async(
            concurrency=concurrency, wait=False, listen_notify=False, install_signal_handlers=False
        )
        print(int(what) / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
