"""A Member Node harvested by workers of other machines: bytes come through a tunnel, and a move loses nothing."""

from pathlib import Path

from skep.testing.membernode import MemberNode
from tests.cluster.fleet import Coordinator, Member, until
from tests.dataone.objects import EML


def test_bytes_come_through_a_tunnel_and_another_worker_goes_on(tmp_path: Path) -> None:
    with MemberNode() as node, Coordinator(tmp_path / "coordinator", poll_min=0.5) as coordinator:
        for n in range(150):
            node.put(f"p{n}", b"<eml>%d</eml>" % n, EML)

        def held(count: int) -> bool:
            return [one["objects"].get("held") for one in coordinator.rows("dataone", "nodes")] == [count]

        first = Member(tmp_path / "first", coordinator.make_line("--name", "first"))
        with first:
            first.attached()
            coordinator.cli("source", "add", node.base, "--kind", "dataone")
            until(lambda: held(150), coordinator)
            status, found = coordinator.get(
                "/api/v1/dataone/explain?pid=p7", authorization=f"Bearer {coordinator.token}"
            )
            assert (status, found["kept"]) == (200, True)
            second = Member(tmp_path / "second", coordinator.make_line("--name", "second"))
            with second:
                second.attached()
                coordinator.cli("worker", "drain", "first")
                until(lambda: coordinator.rows("source", "list")[0]["epoch"] > 1, coordinator)
                for n in range(150, 160):
                    node.put(f"p{n}", b"<eml>%d</eml>" % n, EML)
                coordinator.cli("source", "fetch", coordinator.rows("source", "list")[0]["id"])
                until(lambda: held(160), coordinator)
                assert not list((first.data / "worker" / "packs").glob("*"))
