"""A running Skep harvests a node: through the command line, past kill -9, and without losing or halving anything."""

import time
from pathlib import Path
from typing import Any

from skep.testing.membernode import MemberNode
from tests.dataone.objects import EML
from tests.house.running import RunningSkep


def settled(skep: RunningSkep, node: str, held: int) -> dict[str, Any]:
    """Waits until so many objects are held and nothing is queued."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        rows = [one for one in skep.rows("dataone", "nodes") if one["id"] == node]
        objects = rows[0]["objects"] if rows else {}
        if objects.get("held") == held and not objects.get("queued"):
            return rows[0]
        time.sleep(0.2)
    raise AssertionError(f"not settled: {rows}{skep.tail()}")


def test_harvest_change_kill_and_harvest_again(tmp_path: Path) -> None:
    with MemberNode() as node, RunningSkep(tmp_path / "data", poll_min=1.0) as skep:
        for n in range(300):
            node.put(f"doi:10.5/{n}", b"<eml>%d</eml>" % n, EML)
        (source,) = skep.rows("source", "add", f"{node.base}/v2", "--kind", "dataone")
        assert source["kind"] == "dataone"
        seen = settled(skep, node.id, 300)
        assert seen["limits"]["connections"] == 5 and seen["next_at"]

        for n in range(300, 900):
            node.put(f"doi:10.5/{n}", b"<eml>%d</eml>" % n, EML)
        node.update("doi:10.5/0", "doi:10.5/0.2", b"<eml>0.2</eml>")
        skep.rows("source", "fetch", source["id"])
        before = len(node.requests)
        until = time.monotonic() + 60
        while len(node.requests) < before + 300:
            assert time.monotonic() < until, skep.tail()
            time.sleep(0.01)
        skep.kill()
        node.delete("doi:10.5/5")
        skep.start()
        skep.rows("source", "fetch", source["id"])
        settled(skep, node.id, 901)
        skep.rows("dataone", "reconcile", node.id)
        gone = settled(skep, node.id, 900)
        assert gone["objects"]["gone"] == 1

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
        skep.rows("source", "add", node.base, "--kind", "dataone")
        settled(skep, node.id, 1)
        (seen,) = skep.rows("dataone", "set", node.id, "--connections", "2", "--rate", "50", "--pause")
        assert seen["paused"] and seen["limits"] == {"connections": 2, "rate": 50.0, "bytes": 64 << 20}
        assert skep.cli("dataone", "set", node.id, "--connections", "0", check=False).returncode == 2
        node.put("b", b"<eml>b</eml>", EML)
        skep.cli("dataone", "set", node.id, "--resume")
        settled(skep, node.id, 2)
        assert "harvested" in skep.cli("dataone", "nodes").stdout
