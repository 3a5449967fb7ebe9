"""The safety of copies through the whole of Skep: asking, accepting, repairing, and refs with frightening names."""

import json
import random
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from skep.sources.git.mirror import folder_of
from tests.house.running import RunningSkep
from tests.support.forge import Forge, Repo


@pytest.fixture(scope="module")
def skep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    with RunningSkep(
        tmp_path_factory.mktemp("skep") / "data",
        label=[{"name": "archive", "force_push": "ask"}],
        fsck_every=5.0,
        huge_over=300_000,
    ) as running:
        yield running


def until(true: Callable[[], object], seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def shown(skep: RunningSkep, url: str) -> dict[str, object]:
    return skep.rows("source", "show", url)[0]


def test_a_rewrite_is_asked_about_and_accepted(skep: RunningSkep, forge: Forge) -> None:
    repo, url = forge.create("safe/archive", {"a": b"1\n"}), forge.url("safe/archive")
    skep.cli("source", "add", url, "--label", "archive", "--wait")
    repo.force_push({"a": b"other\n"})
    assert skep.cli("source", "fetch", url, "--wait", check=False).returncode == 6
    source = shown(skep, url)
    assert source["state"] == "asking"
    assert skep.cli("source", "accept", url, "--wait").returncode == 0
    assert (shown(skep, url)["state"], shown(skep, url)["indexed_commit"]) == (
        "current",
        repo.refs()["refs/heads/main"],
    )
    again = skep.cli("source", "accept", url, check=False)
    assert again.returncode != 0 and "asks for nothing" in again.stderr


def test_settings_by_command(skep: RunningSkep, forge: Forge) -> None:
    repo, url = forge.create("safe/settings", {"a": b"1\n"}), forge.url("safe/settings")
    repo.git("update-ref", "refs/pull/1/head", "refs/heads/main")
    skep.cli("source", "add", url, "--wait")
    words = ["--set", "refs=refs/heads/*,refs/pull/*/head", "--set", "force_push=follow", "--set", "poll_max=77"]
    source = skep.rows("source", "update", url, *words)[0]
    refs = ["refs/heads/*", "refs/pull/*/head"]
    assert source["settings"] == {"refs": refs, "force_push": "follow", "poll_max": 77.0}
    more = ("--set", "priority=100", "--set", "branches=v*")
    settings = skep.rows("source", "update", url, *more)[0]["settings"]
    assert (settings["priority"], settings["branches"]) == (100, ["v*"])
    skep.cli("source", "update", url, "--set", "priority=", "--set", "branches=")
    served = Repo(folder_of(skep.data, str(source["id"])))
    until(lambda: "refs/pull/1/head" in served.refs())
    assert skep.rows("source", "update", url, "--set", "refs=", "--set", "poll_max=")[0]["settings"] == {
        "force_push": "follow"
    }
    until(lambda: "refs/pull/1/head" not in served.refs())
    for bad in ("colour=red", "force_push=maybe", "refs=-x", "poll_max=soon", "priority=501", "x"):
        assert skep.cli("source", "update", url, "--set", bad, check=False).returncode == 2


def test_a_damaged_mirror_is_found_and_made_anew(skep: RunningSkep, forge: Forge) -> None:
    url = forge.url("safe/rotten")
    forge.create("safe/rotten", {"big": random.Random(1).randbytes(60_000)})
    skep.cli("source", "add", url, "--wait")
    folder = folder_of(skep.data, str(shown(skep, url)["id"]))
    pack = next((folder / "objects/pack").glob("*.pack"))
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)

    def sound() -> bool:
        try:
            Repo(folder).git("fsck", "--full")
        except RuntimeError:
            return False
        return True

    until(sound)


def test_a_huge_one_is_searchable_first_and_whole_later(skep: RunningSkep, forge: Forge) -> None:
    repo, url = forge.create("safe/huge"), forge.url("safe/huge")
    dice = random.Random(1)
    for n in range(5):
        repo.commit({"big": dice.randbytes(100_000), "word.txt": b"needle%d\n" % n})
    skep.cli("source", "add", url, "--wait")
    assert skep.rows("search", "needle4")
    mirror = Repo(folder_of(skep.data, str(shown(skep, url)["id"])))
    skep.cli("source", "fetch", url)
    until(lambda: mirror.git("rev-list", "--count", "main").strip() == b"5")
    assert mirror.refs() == repo.refs()


@pytest.mark.parametrize("name", ["-x", "<script>alert(1)</script>", "a'b\"c", "$(id)", "--help", "日本"])
def test_refs_with_frightening_names_in_answers_and_pages(skep: RunningSkep, forge: Forge, name: str) -> None:
    where = f"safe/names{abs(hash(name))}"
    repo = forge.create(where, {"a.txt": b"1\n"})
    repo.branch(name)
    repo.set_head(name)
    repo.delete_branch("main")
    repo.commit({"a.txt": b"2\n"}, branch=name)
    skep.cli("source", "add", forge.url(where), "--wait")
    source = shown(skep, forge.url(where))
    assert (source["default_branch"], source["state"]) == (name, "current")
    id, rev = source["id"], urllib.parse.quote(name, safe="")
    status, changes = skep.get(f"/api/v1/sources/{id}/changes")
    assert status == 200 and f"refs/heads/{name}" in json.dumps(changes, ensure_ascii=False).replace('\\"', '"')
    assert skep.get(f"/api/v1/sources/{id}/file?path=a.txt&rev={rev}")[0] == 200
    for path in (f"/sources/{id}", f"/sources/{id}/file/a.txt?rev={rev}", f"/?q=repo:{where}+2", "/sources"):
        with urllib.request.urlopen(skep.url + path, timeout=60) as answer:
            page = answer.read().decode()
        assert answer.status == 200 and "<script>alert" not in page and "a'b\"c" not in page
