"""A Member Node harvested by workers of other machines: bytes come through a tunnel, and a move loses nothing."""

from pathlib import Path
from typing import Any

from skep.dataone.testing import MemberNode
from skep.testing.documents import eml
from tests.cluster.fleet import Coordinator, Member, until
from tests.cluster.test_aggregator_apart import Aggregator
from tests.dataone.objects import EML
from tests.house.running import RunningSkep
from tests.support.postgres import fresh_database


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


async def test_every_process_that_serves_has_all_records(tmp_path: Path, postgres_url: str) -> None:
    """Async only because the database's fixture is: every process here is a real one."""
    async with fresh_database(postgres_url) as url:
        with MemberNode() as node:
            _serve(tmp_path, url, node)


def _serve(tmp_path: Path, url: str, node: MemberNode) -> None:
    common: dict[str, Any] = {"database": url, "blobs": f"file:{tmp_path}/blobs", "dataone_index_within": 0.2}
    for n in range(3):
        node.put(f"p{n}", eml(f"Glacier {n}"), EML)

    def finds(server: RunningSkep, *pids: str) -> None:
        def same() -> bool:
            status, found = server.get("/cn/v2/query/solr/?q=title:glacier&fl=id&wt=json&sort=id%20asc")
            return status == 200 and [one["id"] for one in found["response"]["docs"]] == list(pids)

        until(same, server)

    with Coordinator(tmp_path / "coordinator", poll_min=0.5, **common) as coordinator:
        worker = Member(tmp_path / "worker", coordinator.make_line())
        first = Aggregator(tmp_path / "first", coordinator, "relay", **common)
        with worker, first:
            worker.attached()
            coordinator.cli("source", "add", node.base, "--kind", "dataone")
            for server in (coordinator, first):
                finds(server, "p0", "p1", "p2")
            first.kill()
            node.put("p3", eml("Glacier 3"), EML)
            node.archive("p0")
            coordinator.cli("source", "fetch", coordinator.rows("source", "list")[0]["id"])
            finds(coordinator, "p1", "p2", "p3")
            first.start()
            with Aggregator(tmp_path / "second", coordinator, "relay", **common) as second:
                for server in (first, second):
                    finds(server, "p1", "p2", "p3")
