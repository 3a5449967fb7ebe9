"""A real git against the git door of a real Skep."""

import gzip
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.house.running import RunningSkep
from tests.support.forge import Forge


def git(*args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}
    done = subprocess.run(["git", *args], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def sources(skep: RunningSkep) -> dict[str, dict[str, str]]:
    return {row["visibility"]: row for row in skep.rows("source", "list")}


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode("latin-1")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("by", ["name", "quoted", "id"])
@pytest.mark.parametrize("version", ["0", "2"])
def test_clone(full_skep: RunningSkep, tmp_path: Path, by: str, version: str) -> None:
    source = sources(full_skep)["public"]
    ref = {"name": source["name"], "quoted": urllib.parse.quote(source["name"], safe=""), "id": source["id"]}[by]
    git("-c", f"protocol.version={version}", "clone", f"{full_skep.url}/git/{ref}.git", tmp_path / "copy")
    assert (tmp_path / "copy/src/main.py").read_text().startswith("def find_honey")
    git("-C", tmp_path / "copy", "fetch")


def test_a_private_source_is_cloned_with_the_token_as_password(full_skep: RunningSkep, tmp_path: Path) -> None:
    name = sources(full_skep)["private"]["name"]
    refused = git("clone", f"{full_skep.url}/git/{name}.git", tmp_path / "no", check=False)
    assert refused.returncode != 0
    base = full_skep.url.replace("http://", f"http://x:{full_skep.token}@")
    git("clone", f"{base}/git/{name}.git", tmp_path / "copy")
    assert (tmp_path / "copy/plan.txt").exists()


def test_private_and_missing_look_the_same_to_strangers(full_skep: RunningSkep) -> None:
    private = sources(full_skep)["private"]["name"]
    tail = ".git/info/refs?service=git-upload-pack"
    answers = [ask(f"{full_skep.url}/git/{name}{tail}") for name in (private, "no/such/thing")]
    assert [status for status, _ in answers] == [401, 401]
    known = ask(f"{full_skep.url}/git/no/such/thing{tail}", Authorization=f"Bearer {full_skep.token}")
    assert known[0] == 404


def test_pushing_is_refused_in_words(full_skep: RunningSkep, tmp_path: Path) -> None:
    url = f"{full_skep.url}/git/{sources(full_skep)['public']['name']}.git"
    git("clone", url, tmp_path / "copy")
    git(
        "-C",
        tmp_path / "copy",
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.org",
        "commit",
        "--allow-empty",
        "-m",
        "x",
    )
    pushed = git("-C", tmp_path / "copy", "push", "origin", "HEAD", check=False)
    assert pushed.returncode != 0
    assert "mirror" in pushed.stderr
    assert ask(f"{url}/git-receive-pack", b"0000")[0] == 403


def test_what_git_would_not_ask(full_skep: RunningSkep) -> None:
    url = f"{full_skep.url}/git/{sources(full_skep)['public']['name']}.git"
    kind = "application/x-git-upload-pack-request"
    assert ask(f"{url}/info/refs")[0] == 403
    assert ask(f"{url}/HEAD")[0] == 404
    assert ask(f"{url}/objects/../../config")[0] == 404
    assert ask(f"{url}/git-upload-pack")[0] == 400
    assert ask(f"{url}/git-upload-pack", b"0000", Content_Type="text/plain")[0] == 400
    assert ask(f"{url}/git-upload-pack", b"no gzip", Content_Type=kind, Content_Encoding="gzip")[0] == 400
    assert ask(f"{url}/git-upload-pack", b"0000", Content_Type=kind, Content_Encoding="br")[0] == 400
    bomb = gzip.compress(bytes(70_000_000))
    assert ask(f"{url}/git-upload-pack", bomb, Content_Type=kind, Content_Encoding="gzip")[0] == 413
    assert ask(f"{full_skep.url}/healthz")[0] == 200


@pytest.mark.parametrize("ending", ["", ".git"])
@pytest.mark.parametrize("how", ["", "http://"])
def test_instead_of_leads_to_the_mirror(full_skep: RunningSkep, tmp_path: Path, how: str, ending: str) -> None:
    """As docs/serving.md says: what is typed is the upstream's URL."""
    upstream = sources(full_skep)["public"]["url"].removesuffix(".git")
    rewrite = f"url.{full_skep.url}/git/{how}.insteadOf=http://"
    traced = git("-c", rewrite, "clone", "-q", upstream + ending, tmp_path / "copy")
    assert not traced.stderr
    assert (tmp_path / "copy/src/main.py").exists()
    git("-C", tmp_path / "copy", "-c", rewrite, "fetch", "-q")


def test_instead_of_ssh(full_skep: RunningSkep, tmp_path: Path) -> None:
    host, _, path = sources(full_skep)["public"]["name"].partition("/")
    rewrite = f"url.{full_skep.url}/git/{host}/.insteadOf=git@forge.example.org:"
    git("-c", rewrite, "clone", "-q", f"git@forge.example.org:{path}.git", tmp_path / "copy")
    assert (tmp_path / "copy/src/main.py").exists()


def test_a_name_of_before_is_redirected(full_skep: RunningSkep, door_forge: Forge, tmp_path: Path) -> None:
    door_forge.create("old/place", {"a": b"1\n"})
    (door_forge.folder / "new").mkdir()
    (door_forge.folder / "new/place.git").symlink_to(door_forge.folder / "old/place.git")
    full_skep.cli("source", "add", door_forge.url("old/place"), "--wait")
    old = full_skep.rows("source", "show", door_forge.url("old/place"))[0]
    full_skep.cli("source", "update", old["id"], "--url", door_forge.url("new/place"))
    new = full_skep.rows("source", "show", door_forge.url("new/place"))[0]
    assert (new["id"], new["indexed_commit"]) == (old["id"], old["indexed_commit"])
    done = git("clone", f"{full_skep.url}/git/{old['name']}.git", tmp_path / "copy")
    assert f"redirecting to {full_skep.url}/git/{urllib.parse.quote(new['name'])}.git" in done.stderr
    assert (tmp_path / "copy/a").read_text() == "1\n"
    full_skep.cli("source", "update", old["id"], "--private")
    assert ask(f"{full_skep.url}/git/{old['name']}.git/info/refs?service=git-upload-pack")[0] == 401
    full_skep.cli("source", "remove", "--yes", old["id"])


def test_waiting_for_a_commit(full_skep: RunningSkep, door_forge: Forge) -> None:
    repo = door_forge.create("wait/here", {"a": b"bumblebee 1\n"})
    first = repo.refs()["refs/heads/main"]
    added = full_skep.cli("fetch", door_forge.url("wait/here"), "--commit", first)
    assert "is searchable" in added.stdout
    second = repo.commit({"a": b"bumblebee 2\n"})
    third = repo.commit({"a": b"bumblebee 3\n"})
    for commit in (second, third[:12], first):
        full_skep.cli("source", "fetch", door_forge.url("wait/here"), "--commit", commit)
    assert "bumblebee 3" in full_skep.cli("search", "bumblebee").stdout
    side = repo.commit({"b": b"x\n"}, branch="side")
    full_skep.cli("source", "fetch", door_forge.url("wait/here"), "--commit", side)
    here = f"/api/v1/sources/{full_skep.rows('source', 'show', door_forge.url('wait/here'))[0]['id']}"
    absent = full_skep.get(f"{here}/wait?commit={'e' * 40}&timeout=0.2")
    assert (absent[0], absent[1]["settled"]) == (200, False)
    assert full_skep.get(f"{here}/wait?commit=--all")[0] == 400
