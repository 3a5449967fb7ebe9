"""docs/topics.md: what it shows is run, on a fresh server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.running import RunningSkep, environment

PAGE = Path(__file__).parents[2] / "docs" / "topics.md"


def test_every_example_of_the_page_runs(mortal: RunningSkep, tmp_path: Path) -> None:
    """The programs find the token by themselves, as those of the same user do."""
    variables = environment({}) | {"SKEP": mortal.url, "SKEP_URL": mortal.url}
    more = {"sh": {"SKEP_TOKEN": mortal.token}, "python": {"XDG_STATE_HOME": str(mortal.data.parent / "state")}}
    page = PAGE.read_text().replace("--max-time 1 ", "--max-time 10 ")  # a machine may hold its breath for a second
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python"]
    outputs = []
    for kind, text in blocks:
        command = ["bash", "-euc", text] if kind == "sh" else [sys.executable, "-c", text]
        ended = subprocess.run(
            command, env=variables | more[kind], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        outputs.append(ended.stdout)
    http, library, queue, names = outputs
    assert len([line for line in blocks[1][1].splitlines() if line]) <= 10
    assert '"places":[{"partition":0,"offset":' in http
    assert '"body":"three pots"' in http
    assert "id: 2" in http
    assert "greetings 0 1 later" in library
    assert '"message":"user_login anna"' in queue
    assert names == "anna 0 {'signups': 1}\n"
