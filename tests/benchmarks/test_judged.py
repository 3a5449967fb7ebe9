"""A repository with a slow commit planted among a hundred: found, named, bisected, plotted; what is killed goes on."""

import json
import time
from pathlib import Path
from typing import Any

from skep.benchmarks.api import Benchmark, BenchmarkSpec, Step
from skep.client import Client
from tests.benchmarks.slow_repo import slow_repo
from tests.house.running import RunningSkep

COMMAND = ("python3", "bench.py")


def spec(source: str, commits: list[str], **more: Any) -> BenchmarkSpec:
    given: dict[str, Any] = {
        "command": COMMAND,
        "read": "out.jsonl",
        "mode": "range",
        "range": f"{commits[0]}..{commits[-1]}",
        "repetitions": 2,
        "warmup": 0,
        "exclusive": "none",
        **more,
    }
    return BenchmarkSpec("speed", source, **given)


def mirrored(skep: RunningSkep, folder: Path) -> str:
    skep.cli("source", "add", str(folder))
    with Client(skep.url, skep.token) as client:
        client.sources.wait(str(folder), timeout=60)
    return str(folder)


def ended(skep: RunningSkep, *, within: float = 240.0) -> Benchmark:
    """When it has measured all there is."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        with Client(skep.url, skep.token) as client:
            one = client.benchmarks.show("speed")
        if one.state != "running":
            return one
        time.sleep(0.2)
    raise AssertionError(f"it did not end: {one}{skep.tail()}")


def told(skep: RunningSkep) -> list[dict[str, Any]]:
    messages = skep.rows("topic", "read", "skep.steps", "--offset", "0")
    return [json.loads(one["body"]) if isinstance(one["body"], str) else one["body"] for one in messages]


def steps(skep: RunningSkep) -> list[Step]:
    with Client(skep.url, skep.token) as client:
        return client.benchmarks.steps("speed")


def test_a_slow_commit_among_a_hundred_is_found_named_bisected_and_plotted(skep: RunningSkep, tmp_path: Path) -> None:
    repo, commits = slow_repo(tmp_path / "repo", 100, 63)
    source = mirrored(skep, repo.folder)
    with Client(skep.url, skep.token) as client:
        client.benchmarks.add(spec(source, commits, points=12))
    one = ended(skep)
    assert (one.state, one.failed) == ("finished", 0), (one, skep.tail())
    assert one.contexts <= 12 + 8, "only what lies around the step is measured besides"
    (step,) = steps(skep)
    assert (step.commit, step.previous, step.state) == (commits[63], commits[62], "told")
    assert (step.author, step.subject) == ("Forge", "change number 63")
    assert 0.08 < step.change < 0.12
    assert [message["commit"] for message in told(skep)] == [commits[63]]
    status, picture = _get(skep, "/benchmarks/speed/series.svg")
    assert status == 200
    assert commits[63][:12] in picture
    assert "change number 63" in picture
    status, change = _get(skep, f"/sources/{step.source}/commit/{commits[63]}")
    assert status == 200
    assert "+0.275" in change
    status, page = _get(skep, "/benchmarks/speed")
    assert status == 200
    assert f'data-step="{commits[63]}"' in page
    assert f"/sources/{step.source}/commit/{commits[63]}" in page


def _get(skep: RunningSkep, path: str) -> tuple[int, str]:
    import urllib.request

    request = urllib.request.Request(skep.url + path, headers={"Authorization": f"Bearer {skep.token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, answer.read().decode()


def test_noise_without_a_step_is_silence_and_kills_lose_nothing(skep: RunningSkep, tmp_path: Path) -> None:
    repo, commits = slow_repo(tmp_path / "repo", 40, None, noise=0.05, broken=7)
    source = mirrored(skep, repo.folder)
    with Client(skep.url, skep.token) as client:
        client.benchmarks.add(spec(source, commits, points=20))
    for n in range(4):
        time.sleep(2.5)  # the moment of the kill is the test's input
        if n % 2:
            skep.kill()
            skep.start()
        else:
            skep.kill_children()
    one = ended(skep)
    assert one.state == "finished", (one, skep.tail())
    assert steps(skep) == []
    assert told(skep) == []
    with Client(skep.url, skep.token) as client:
        results = list(client.results.list(["benchmark=speed"]))
        contexts = [one for one in client.contexts.list(cause="benchmark:speed") if one.name.startswith("speed ")]
    measured = [result.commit for result in results]
    assert len(measured) == len(set(measured)) == one.contexts == len({context.name for context in contexts})
    (failure,) = [result for result in results if result.kind == "failure"]
    assert failure.commit == commits[7] or commits[7] not in measured
    assert "ended with 3" in failure.tags["reason"]
