"""Replication for real: targets pull the bytes from the other node and report to the Coordinating Node."""

import time
from pathlib import Path

from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import NodeReplicationPolicy, ReplicationPolicy
from tests.house.running import RunningSkep


def test_targets_pull_report_back_and_are_not_believed(tmp_path: Path) -> None:
    with (
        MemberNode("urn:node:Origin") as origin,
        MemberNode("urn:node:Full") as full,
        MemberNode("urn:node:Liar", faults=Faults(replicate="lie")) as liar,
        MemberNode("urn:node:Target") as target,
        RunningSkep(tmp_path / "data", poll_min=1.0) as skep,
    ):
        for node in (full, liar, target):
            node.replication = NodeReplicationPolicy(space_allocated=3 if node is full else None)
            node.cn, node.cn_token = f"{skep.url}/cn", skep.token
        wish = ReplicationPolicy(True, 1, preferred_member_node=(full.id, liar.id))
        for node in (full, liar, target):
            skep.rows("source", "add", node.base, "--kind", "dataone")
        until = time.monotonic() + 120
        while len([row for row in skep.rows("dataone", "nodes") if row["listed_at"]]) < 3:
            assert time.monotonic() < until, skep.tail()
            time.sleep(0.2)
        origin.put("a/b", b"1,2\n", "text/csv", replication_policy=wish)
        skep.rows("source", "add", origin.base, "--kind", "dataone")
        replicas: dict[str, str] = {}
        while replicas.get(target.id) != "completed":
            assert time.monotonic() < until, f"{replicas}{skep.tail()}"
            time.sleep(0.2)
            found = skep.cli("dataone", "explain", "a/b", "--json", check=False)
            replicas = skep.rows("dataone", "explain", "a/b")[0]["replicas"] if found.returncode == 0 else {}
        assert replicas == {origin.id: "completed", liar.id: "invalidated", target.id: "completed"}
        assert target.body("a/b") == b"1,2\n"
        assert not full.asked("/replicate")
