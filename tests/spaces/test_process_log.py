"""The log of all processes: what is kept, what is told of what is not, and how it comes through a disconnection."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.clock import SystemClock
from skep.base.errors import NotAllowed
from skep.base.log_lines import Line, Lines
from skep.base.logs import LineBuffer, Text
from skep.rpc.client import Peer
from skep.rpc.messages import AnswerBody, AskBody
from skep.rpc.server import LinkServer
from skep.spaces.api import Nothing
from skep.spaces.processes import Journal
from skep.storage.database import Database
from tests.link.ends import TOKEN, MemoryDesk


@pytest.fixture
async def journal(database: Database) -> Journal:
    journal = Journal(database, SystemClock(), keep=50)
    await journal.start()
    return journal


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, LineBuffer]]:
    logger, buffer = logging.getLogger("skep.test_process_log"), LineBuffer(Text(), room=20)
    logger.addHandler(buffer)
    logger.propagate = False
    logger.setLevel("DEBUG")
    yield logger, buffer
    logger.removeHandler(buffer)


def line(n: int, severity: int = logging.INFO, about: str = "") -> Line:
    return Line(n, 1.0 + n, severity, f"line {n}\0", about)


async def texts(journal: Journal, **asked: object) -> list[str]:
    return [one.text for one in await journal.read(SYSTEM, **asked)]  # type: ignore[arg-type]


async def test_the_newest_are_kept_repeats_are_stored_once(journal: Journal) -> None:
    for n in range(1, 61, 10):
        batch = tuple(line(m) for m in range(n, n + 10))
        await journal.store("wrk_1", 5, batch)
        await journal.store("wrk_1", 5, batch)
    kept = await journal.read(SYSTEM, limit=1000)
    assert 10 < len(kept) <= 50
    assert [one.text for one in kept] == [f"line {n}␀" for n in range(61 - len(kept), 61)]
    assert kept[-1].n > kept[0].n
    # another start counts anew
    await journal.store("wrk_1", 6, (line(60),))
    assert (await texts(journal, limit=2)) == ["line 60␀", "line 60␀"]


async def test_what_is_asked_for(journal: Journal) -> None:
    await journal.store("wrk_1", 1, (line(1), line(2, logging.ERROR, "src_1")))
    await journal.store("man_1", 1, (line(3, logging.DEBUG), line(4, 35)))
    assert await texts(journal, level="warning") == ["line 2␀", "line 4␀"]
    assert await texts(journal, process="man_1") == ["line 3␀", "line 4␀"]
    assert await texts(journal, about="src_1") == ["line 2␀"]
    assert [one.level for one in await journal.read(SYSTEM)] == ["info", "error", "debug", "warning"]
    first = (await journal.read(SYSTEM))[0]
    assert await texts(journal, after=first.n, limit=2) == ["line 2␀", "line 3␀"]
    with pytest.raises(NotAllowed):
        await journal.read(Caller("r", frozenset({"read"})))


async def test_who_follows_is_woken(journal: Journal) -> None:
    waiting = asyncio.create_task(texts(journal, after=0, wait=60))
    await asyncio.sleep(0.05)
    await journal.store("wrk_1", 1, (line(1),))
    assert await waiting == ["line 1␀"]
    assert await texts(journal, after=1, wait=0.01) == []


class LogDesk(MemoryDesk):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    async def ask(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        assert isinstance(body, Lines)
        self.lines += body.lines
        await self.tell()
        return Nothing()


async def test_lines_wait_for_the_link_and_tell_of_what_was_dropped(
    tmp_path: Path, logger: tuple[logging.Logger, LineBuffer]
) -> None:
    log, buffer = logger
    desk, target = LogDesk(), f"unix:{tmp_path / 'link.sock'}"
    async with Peer(target, TOKEN, ("manager",), SystemClock()).running() as peer:
        sending = asyncio.create_task(buffer.run(peer.ask))
        for n in range(30):
            log.info("line %d", n)
        server = LinkServer(desk, beat_every=0.1)
        await server.start(target)
        await desk.until(lambda: len(desk.lines) == 21)
        first, *rest = desk.lines
        assert (first.text, first.severity) == ("10 older lines were dropped: they could not be sent in time", 30)
        assert [one.text for one in rest] == [f"skep.test_process_log line {n}" for n in range(10, 30)]
        await asyncio.to_thread(log.error, "from a thread", extra={"source": "src_1"})
        await desk.until(lambda: len(desk.lines) == 22)
        assert desk.lines[-1].about == "src_1"
        assert desk.lines[-1].text == "skep.test_process_log from a thread source=src_1"
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        await server.stop()
