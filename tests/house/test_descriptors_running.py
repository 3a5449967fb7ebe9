"""Server, worker, index builder and keeper of a whole Skep: none of them closes a descriptor twice."""

from pathlib import Path

import pytest

from tests.house.running import RunningSkep
from tests.support.descriptors import WITHOUT_STRACE, closed_twice, traced
from tests.support.forge import Forge

#: a task that uses the API of its context
ASKING = 'curl -s -X PUT -H "Authorization: Bearer $SKEP_TOKEN" -d \'{"value": 1}\' "$SKEP_API/state/key"; echo done'


@pytest.mark.skipif(bool(WITHOUT_STRACE), reason=WITHOUT_STRACE)
def test_skep_mirroring_searching_and_running_tasks_closes_no_descriptor_twice(tmp_path: Path, forge: Forge) -> None:
    log = tmp_path / "trace" / "log"
    log.parent.mkdir()
    repo = forge.create("team/traced", {"a.py": b"def needle():\n    pass\n"})
    with RunningSkep(tmp_path / "data", before=traced(log), task_commands=["sh"], task_lease=6.0) as skep:
        skep.cli("source", "add", forge.url("team/traced"), "--wait")
        repo.commit({"b.py": b"needle = 2\n"})
        skep.cli("source", "fetch", forge.url("team/traced"), "--wait")
        assert len(skep.rows("search", "needle")) == 2
        for _ in range(5):
            skep.cli("task", "run", "--follow", "--", "sh", "-c", ASKING)
        for _ in range(3):
            task = skep.cli("task", "run", "--", "sh", "-c", "echo out; sleep 1000").stdout.split()[0]
            skep.cli("task", "cancel", task)
        skep.cli("task", "run", "--", "sh", "-c", "sleep 1000")
        assert skep.stop() == 0
    assert closed_twice(log) == []
