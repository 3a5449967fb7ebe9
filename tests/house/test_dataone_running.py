"""A running Skep harvests a node: through the command line, past kill -9, and without losing or halving anything."""

import time
from collections.abc import AsyncIterator
from http.client import BadStatusLine, HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.dataone.encoding import encode, parse
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import ObjectList, SystemMetadata
from tests.dataone.objects import EML
from tests.house.running import RunningSkep
from tests.support.nats import running_nats
from tests.support.postgres import fresh_database


def settled(skep: RunningSkep, node: str, held: int) -> dict[str, Any]:
    """Waits until so many objects are held and nothing waits."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        answer = skep.get("/api/v1/dataone/nodes", authorization=f"Bearer {skep.token}")[1]
        rows: list[dict[str, Any]] = [one for one in answer["nodes"] if one["id"] == node]
        objects = rows[0]["objects"] if rows else {}
        if objects.get("held") == held and not objects.keys() & {"queued", "missing"}:
            return rows[0]
        time.sleep(0.2)
    raise AssertionError(f"not settled: {rows}{skep.tail()}")


@pytest.fixture(params=["sqlite", "postgres and nats"])
async def engines(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    if request.param == "sqlite":
        yield {}
        return
    async with fresh_database(request.getfixturevalue("postgres_url")) as database:
        with running_nats(tmp_path / "nats") as nats:
            yield {"database": database, "log": f"{nats.url}?patience=30"}


def same(skep: RunningSkep, node: MemberNode) -> bool:
    """Identifiers, checksums, bytes, versions and permissions, as anybody is shown them."""
    line = HTTPConnection(skep.url.removeprefix("http://"))

    def ask(path: str) -> HTTPResponse:
        line.request("GET", f"/cn/v2/{path}")
        return line.getresponse()

    def read(path: str) -> bytes:
        try:
            answer = ask(path)
        except (BadStatusLine, ConnectionError):  # a line that was idle for a while is closed
            line.close()
            answer = ask(path)
        assert answer.status == 200, (path, answer.read())
        return answer.read()

    listed = parse(ObjectList, read("object?count=5000")).object_info
    assert {one.identifier: one.checksum for one in listed} == {pid: node.meta(pid).checksum for pid in node.pids}
    for pid in node.pids:
        ours = parse(SystemMetadata, read(f"meta/{encode(pid)}"))
        assert replace(ours, serial_version=1, replica=()) == node.meta(pid)
        assert read(f"object/{encode(pid)}") == node.body(pid)
    line.close()
    return True


def test_harvest_change_kill_and_harvest_again(engines: dict[str, str], tmp_path: Path) -> None:
    with MemberNode() as node, RunningSkep(tmp_path / "data", poll_min=1.0, **engines) as skep:
        for n in range(300):
            node.put(f"doi:10.5/{n}", b"<eml>%d</eml>" % n, EML)
        (source,) = skep.rows("source", "add", f"{node.base}/v2", "--kind", "dataone")
        assert source["kind"] == "dataone"
        seen = settled(skep, node.id, 300)
        assert seen["limits"]["connections"] == 5 and seen["next_at"]

        for n in range(300, 900):
            node.put(f"doi:10.5/{n}", b"<eml>%d</eml>" % n, EML)
        node.update("doi:10.5/0", "doi:10.5/0.2", b"<eml>0.2</eml>")
        before = len(node.requests)
        node.faults = Faults(delay=0.01)  # so that it is in the middle when it is killed
        skep.rows("source", "fetch", source["id"])
        until = time.monotonic() + 180
        while len(node.requests) < before + 800:
            assert time.monotonic() < until, skep.tail()
            time.sleep(0.01)
        skep.kill()
        node.faults = Faults()
        node.delete("doi:10.5/5")
        skep.start()
        skep.rows("source", "fetch", source["id"])
        settled(skep, node.id, 901)
        skep.rows("dataone", "reconcile", node.id)
        gone = settled(skep, node.id, 900)
        assert gone["objects"]["gone"] == 1 and same(skep, node)

        read = f"/api/v1/sources/{source['id']}/changes?limit=1000"
        bodies = skep.get(read, authorization=f"Bearer {skep.token}")[1]["items"]
        moves = {(one["entry"], one["seq"]) for one in bodies}
        assert len(moves) == len(bodies) == 901 + 1 + 1, "each change once: new ones, an update, a deletion"
        (story,) = skep.rows("dataone", "explain", "doi:10.5/0")
        assert story["state"] == "stored" and story["versions"] == ["doi:10.5/0", "doi:10.5/0.2"]
        assert "neither lists nor has it" in skep.cli("dataone", "explain", "doi:10.5/5").stdout
        assert skep.cli("dataone", "explain", "nothing", check=False).returncode == 3


def test_a_node_is_paused_and_its_limits_change(tmp_path: Path) -> None:
    with MemberNode() as node, RunningSkep(tmp_path / "data", poll_min=1.0) as skep:
        node.put("a", b"<eml/>", EML)
        (source,) = skep.rows("source", "add", node.base, "--kind", "dataone")
        settled(skep, node.id, 1)
        (seen,) = skep.rows("dataone", "set", node.id, "--connections", "2", "--rate", "50", "--pause")
        assert seen["paused"] and seen["limits"] == {"connections": 2, "rate": 50.0, "bytes": 64 << 20}
        assert skep.cli("dataone", "set", node.id, "--connections", "0", check=False).returncode == 2
        skep.rows(
            "source", "fetch", source["id"], "--wait"
        )  # a visit that began before the pause would list what comes
        node.put("b", b"<eml>b</eml>", EML)
        (seen,) = skep.rows("dataone", "reconcile", node.id, "--dry-run")
        assert seen["counts"] == {"unchanged": 1, "new": 1} and seen["named"] == ["b"]
        assert "1 new" in skep.cli("dataone", "reconcile", node.id, "--dry-run", "--since", "2001-01-01").stdout
        skep.cli("dataone", "set", node.id, "--resume")
        settled(skep, node.id, 2)
        assert "harvested" in skep.cli("dataone", "nodes").stdout
        shown = skep.cli("dataone", "node", node.id).stdout
        assert "2 held" in shown and "2 new" in shown and "everything dated before" in shown
