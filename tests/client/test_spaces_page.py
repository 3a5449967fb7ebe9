"""docs/spaces.md: what it shows is run, on a fresh server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.running import RunningSkep, environment

PAGE = Path(__file__).parents[2] / "docs" / "spaces.md"


def test_every_example_of_the_spaces_page_runs(mortal: RunningSkep, tmp_path: Path) -> None:
    variables = environment({}) | {"SKEP": mortal.url, "SKEP_URL": mortal.url, "SKEP_TOKEN": mortal.token}
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "sh"]
    outputs = []
    for kind, text in blocks:
        command = ["bash", "-euc", text] if kind == "sh" else [sys.executable, "-c", text]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        outputs.append(ended.stdout)
    library, http = outputs
    assert library == "doing job 1\nNone None\n"
    assert '"fields":["pot",3,true],"id":"order-17","ticket":"again"' in http
    assert '"fields":["open",true]' in http
    assert '{"name":"orders","size":0,"taken":0}' in http
