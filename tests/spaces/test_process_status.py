"""Every process has exactly one status tuple, whatever happens."""

import asyncio
import urllib.request
from typing import Any

import pytest

from skep.spaces.processes import Statuses
from skep.spaces.service import Spaces
from skep.storage.database import Database
from tests.house.running import RunningSkep
from tests.house.waiting import until
from tests.rooms.house import MovedClock


async def texts(statuses: Statuses) -> dict[str, str]:
    found = await statuses.all()
    assert len({one.id for one in found}) == len(found)
    return {one.id: one.text for one in found}


async def test_the_protocol(spaces: Spaces, database: Database, clock: MovedClock) -> None:
    statuses = Statuses(database, clock, "crd_1")
    await statuses.tell("wrk_1", "idle")
    assert await texts(statuses) == {"wrk_1": "idle"}
    since = (await statuses.all())[0].at
    clock.time += 1
    await statuses.tell("wrk_1", "idle")
    assert (await statuses.all())[0].at == since
    await statuses.tell("wrk_1", "fetching a")
    assert await texts(statuses) == {"wrk_1": "Working on: fetching a"}
    await statuses.tell("wrk_1", "idle")
    await statuses.tell("wrk_1", "idle")
    assert await texts(statuses) == {"wrk_1": "idle, last task: fetching a"}
    await statuses.tell("man_1", "idle")
    await statuses.remove("wrk_1")
    assert await texts(statuses) == {"man_1": "idle"}


async def test_two_coordinators_never_make_two_of_one(spaces: Spaces, database: Database, clock: MovedClock) -> None:
    rooms = [Statuses(database, clock, f"crd_{n}") for n in range(2)]
    await asyncio.gather(*(rooms[n % 2].tell("wrk_1", f"task {n}") for n in range(20)))
    assert len(await texts(rooms[0])) == 1


async def test_what_the_dead_left_is_swept(spaces: Spaces, database: Database, clock: MovedClock) -> None:
    dead = Statuses(database, clock, "crd_dead")
    await dead._replace("crd_dead", "idle")
    await dead.tell("wrk_dead", "task")
    await dead.tell("wrk_alive", "task")
    statuses = Statuses(database, clock, "crd_2")
    await statuses.sweep({"wrk_alive"})
    assert len(await texts(statuses)) == 3
    clock.time += 31  # known to be gone, as servers are: nobody need have swept for it not to be shown
    assert [one.id for one in await statuses.living({"wrk_alive"})] == ["wrk_alive"]
    keeping = asyncio.create_task(statuses.keep(_alive))
    while (await texts(statuses)).keys() != {"crd_2", "wrk_alive"}:
        await asyncio.sleep(0.01)
    keeping.cancel()
    await statuses.close()
    assert await texts(statuses) == {"wrk_alive": "Working on: task"}


async def _alive() -> set[str]:
    return {"wrk_alive"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    running = RunningSkep(tmp_path_factory.mktemp("status-skep") / "data")
    yield running
    running.stop()


def test_every_process_of_a_running_skep_has_a_status_and_a_log(server: RunningSkep) -> None:
    """Coordinator, worker and manager; and the lines of both processes."""

    def kinds() -> set[str]:
        return {row["id"][:3] for row in server.rows("status")[0]["processes"]}

    def logging() -> set[str]:
        return {row["process"][:3] for row in server.rows("log", "--lines", "1000")}

    until(lambda: kinds() == {"crd", "wrk", "man"}, server)
    assert "PROCESS" in server.cli("status").stdout
    until(lambda: {"crd", "wrk"} <= logging(), server)
    assert "attached" in server.cli("log", "--level", "info").stdout
    status, _ = server.get("/api/v1/log?after=0&limit=1", Authorization=f"Bearer {server.token}")
    assert status == 200


def test_the_log_has_a_page(server: RunningSkep) -> None:
    for path in ("/log", "/log?level=error&process=x&about=y", "/status"):
        request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {server.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        assert answer.status == 200
        assert ("of all processes" if "log" in path else "Processes") in text
