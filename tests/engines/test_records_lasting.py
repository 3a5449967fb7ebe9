"""Every Records engine: what was put is there afterwards."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from skep.processes.engines import find
from skep.storage.records.base import Field, Kind, Record, Records
from tests.engines import test_records_contract
from tests.engines.test_records_contract import PAPERS, RECORDS, ids

url, records = test_records_contract.url, test_records_contract.records


async def test_many_writers_share_commits_and_some_leave(records: Records) -> None:
    writers = [asyncio.create_task(records.put("papers", [Record(f"r{n}", {"words": n})])) for n in range(200)]
    await writers[0]
    writers[50].cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    found = set(await ids(records, "", limit=1000))
    assert found >= {f"r{n}" for n in range(200) if n != 50}


async def reopen(records: Records, url: str, tmp_path: Path, kind: Kind = PAPERS) -> tuple[Records, bool]:
    await records.close()
    again: Records = await find("records", url)(url, data=tmp_path)
    return again, await again.declare(kind)


async def test_filled_is_remembered(records: Records, url: str, tmp_path: Path) -> None:
    await records.put("papers", RECORDS)
    again, fill = await reopen(records, url, tmp_path)
    assert fill  # nobody said that this was everything
    await again.filled("papers")
    again, fill = await reopen(again, url, tmp_path)
    assert not fill
    assert await ids(again, "ice") == ["a", "b", "e"]
    other = Kind("papers", (*PAPERS.fields, Field("more", "text")), PAPERS.words)
    again, fill = await reopen(again, url, tmp_path, other)
    assert fill
    assert await ids(again, "") == []
    await again.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from skep.processes.engines import find
from skep.storage.records.base import Record
from tests.engines.test_records_contract import PAPERS

async def main():
    records = await find("records", sys.argv[1])(sys.argv[1], data=Path(sys.argv[2]))
    await records.declare(PAPERS)
    await records.filled("papers")
    n = 0
    while n < 400:  # as many as are found at once
        await records.put("papers", [Record(f"r{n}-{part}", {"title": "ice", "words": n}) for part in "xy"])
        print(n, flush=True)
        n += 1
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged", [1, 4, 12])
async def test_what_was_acknowledged_survives_a_kill(url: str, tmp_path: Path, acknowledged: int) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, url, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout
    for _ in range(acknowledged):
        await child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    last = acknowledged - 1 + len((await child.stdout.read()).splitlines())
    await child.wait()
    records: Records = await find("records", url)(url, data=tmp_path)
    assert not await records.declare(PAPERS)
    found = await ids(records, "ice", limit=1000)
    assert set(found) >= {f"r{n}-{part}" for n in range(last + 1) for part in "xy"}
    assert len(found) in (2 * last + 2, 2 * last + 4)  # one more may be durable already, but whole
    await records.close()
