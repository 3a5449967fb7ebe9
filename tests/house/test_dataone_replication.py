"""Replication for real: a target pulls the bytes from the other node and reports to the Coordinating Node."""

import time
from pathlib import Path

from skep.dataone.types import NodeReplicationPolicy, ReplicationPolicy
from skep.testing.membernode import MemberNode
from tests.house.running import RunningSkep


def test_a_target_pulls_and_reports_back(tmp_path: Path) -> None:
    with (
        MemberNode("urn:node:Origin") as origin,
        MemberNode("urn:node:Target") as target,
        RunningSkep(tmp_path / "data", poll_min=1.0) as skep,
    ):
        target.replication = NodeReplicationPolicy()
        target.cn, target.cn_token = f"{skep.url}/cn", skep.token
        origin.put("a/b", b"1,2\n", "text/csv", replication_policy=ReplicationPolicy(True, 1))
        for node in (target, origin):
            skep.rows("source", "add", node.base, "--kind", "dataone")
        until = time.monotonic() + 60
        replicas: dict[str, str] = {}
        while replicas.get(target.id) != "completed":
            assert time.monotonic() < until, f"{replicas}{skep.tail()}"
            time.sleep(0.2)
            found = skep.cli("dataone", "explain", "a/b", "--json", check=False)
            replicas = skep.rows("dataone", "explain", "a/b")[0]["replicas"] if found.returncode == 0 else {}
        assert replicas == {origin.id: "completed", target.id: "completed"}
        assert target.body("a/b") == b"1,2\n"
