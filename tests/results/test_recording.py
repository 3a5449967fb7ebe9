"""Results on a worker's disk: sent once each, in order, whoever is away, whatever is killed."""

import asyncio
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Unavailable
from skep.processes.engines import find
from skep.results import worker
from skep.results.api import Draft, Record
from skep.results.worker import Recording
from skep.rpc.messages import AnswerBody, AskBody
from skep.sources.polling.store import Store
from skep.storage.database import Database
from skep.tasks.model import Reply


class Coordinator:
    """Takes what it is told, while it is there."""

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.got: dict[tuple[str, int, int], float | None] = {}
        self.refuses = ""

    async def ask(self, body: AskBody) -> AnswerBody:
        await self.there.wait()
        assert isinstance(body, Record) and body.machine == "small"
        if body.task == self.refuses:
            raise BadInput("not this one")
        for n, draft in enumerate(body.results, body.first):
            assert self.got.setdefault((body.task, body.attempt, n), draft.value) == draft.value
        return Reply()


async def opened(folder: Path) -> Database:
    db: Database = await find("db", "sqlite:")("sqlite:", data=folder, durability="delayed")
    await Store(db, SystemClock()).start()
    return db


async def test_many_tasks_at_once(tmp_path: Path) -> None:
    db, there = await opened(tmp_path), Coordinator()
    there.there.set()
    one = Recording(db, there.ask, "small")
    running = asyncio.create_task(one.run())

    async def task(name: str) -> None:
        for n in range(20):
            await one.add((name, 1), [Draft("time", float(n)), Draft("time", n + 0.5)])
        await one.settled((name, 1))
        assert [there.got[name, 1, n] for n in range(40)] == [n / 2 for n in range(40)]

    async with asyncio.timeout(60):
        await asyncio.gather(*(task(f"tsk_{n}") for n in range(8)))
    assert await db.read("SELECT 1 AS x FROM recorded") == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await db.close()


async def test_what_a_killed_worker_left_is_sent_by_the_next(tmp_path: Path) -> None:
    db, there = await opened(tmp_path), Coordinator()
    await Recording(db, there.ask, "small").add(("tsk_1", 3), [Draft("time", float(n)) for n in range(1200)])
    await db.close()
    db = await opened(tmp_path)
    again = Recording(db, there.ask, "small")
    await again.start()
    running = asyncio.create_task(again.run())
    there.there.set()
    async with asyncio.timeout(60):
        await again.settled(("tsk_1", 3))
    assert len(there.got) == 1200
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await db.close()


async def test_refusals_reach_their_task_and_trouble_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_PAUSE_SECONDS", 0.01)
    db, there, troubles = await opened(tmp_path), Coordinator(), [Unavailable("away"), Unavailable("still away")]
    there.there.set()
    there.refuses = "tsk_bad"

    async def ask(body: AskBody) -> AnswerBody:
        if troubles:
            raise troubles.pop()
        return await there.ask(body)

    one = Recording(db, ask, "small")
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(60):
        await one.add(("tsk_bad", 1), [Draft("time", 1.0)])
        await one.add(("tsk_good", 1), [Draft("time", 2.0)])
        with pytest.raises(BadInput, match="not this one"):
            await one.settled(("tsk_bad", 1))
        await one.settled(("tsk_good", 1))
    assert there.got == {("tsk_good", 1, 0): 2.0}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await db.close()
