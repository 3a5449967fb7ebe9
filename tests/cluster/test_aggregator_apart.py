"""An aggregator by itself on the database it shares with a coordinator; and its coordinator's own duties stay there."""

from pathlib import Path
from typing import Any

from skep.testing.forge import Forge
from skep.testing.postgres import fresh_database
from tests.cluster.fleet import Coordinator, until
from tests.house.running import RunningSkep


async def test_an_aggregator_serves_what_a_coordinator_keeps(tmp_path: Path, postgres_url: str) -> None:
    """Async only because the database's fixture is: every process here is a real one."""
    async with fresh_database(postgres_url) as url:
        with Forge(tmp_path / "forge") as forge:
            forge.create("shared/one", {"a.txt": b"hello\n"})
            settings: dict[str, Any] = {"database": url, "task_commands": ["*"]}
            # a worker and a manager of its own, as on one machine
            roles = ["coordinator", "manager", "worker"]
            with (
                Coordinator(tmp_path / "coordinator", tls=False, roles=roles, **settings) as coordinator,
                RunningSkep(tmp_path / "aggregator", role="aggregator", **settings) as aggregator,
            ):
                coordinator.cli("source", "add", forge.url("shared/one"), "--wait")
                assert [one["state"] for one in aggregator.rows("source", "list")] == ["current"]
                # nobody but the coordinator places tasks
                assert "hi" in aggregator.cli("task", "run", "--follow", "--", "echo", "hi").stdout
                until(lambda: any(one["process"].startswith("wrk_") for one in aggregator.rows("log")), aggregator)
                # its index is its own: what the coordinator's process adopted is not touched by it
                assert coordinator.rows("search", "hello")
                assert aggregator.stop() == 0
                assert coordinator.rows("search", "hello")
