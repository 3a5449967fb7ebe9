"""Bad input to a running Skep: a clear answer each, an exit code for programs, and the server stays well."""

import os
from pathlib import Path

import pytest

from tests.house.running import RunningSkep
from tests.support.forge import Fault, Forge


@pytest.fixture(scope="module")
def skep(shared_skep: RunningSkep) -> RunningSkep:
    return shared_skep


def answer(skep: RunningSkep, *args: str) -> tuple[int, str]:
    done = skep.cli(*args, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert skep.get("/healthz")[0] == 200
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("not a url", 2, "spaces"),
        ("ext::sh -c touch% /tmp/pwned", 2, "program"),
        ("--upload-pack=touch /tmp/pwned", 2, ""),
        ("http://169.254.169.254/latest", 4, "never asked"),
        ("http://192.168.77.1/repo", 4, "private address"),
        ("https://user:hunter2@example.org/x", 2, "secret"),
        ("x" * 10_000, 2, "too long"),
    ],
)
def test_urls_that_are_refused_at_once(skep: RunningSkep, url: str, code: int, words: str) -> None:
    got, text = answer(skep, "source", "add", "--", url)
    assert (got, words in text) == (code, True), text
    assert "hunter2" not in text
    assert skep.rows("source", "list", "--state", "new") == []


def failing(skep: RunningSkep, url: str) -> tuple[int, str, str]:
    code, text = answer(skep, "source", "add", url, "--wait")
    source = skep.rows("source", "show", url)[0]
    skep.cli("source", "remove", url, "--yes")
    return code, source["failure"]["kind"] if source["failure"] else "", text


def test_a_repository_that_is_not_there(skep: RunningSkep, forge: Forge) -> None:
    assert failing(skep, forge.url("no/such"))[:2] == (6, "gone")


def test_one_that_wants_a_password(skep: RunningSkep, forge: Forge) -> None:
    forge.create("locked/up", {"a": b"x\n"})
    forge.fault("locked/up", Fault(auth="user:password"))
    assert failing(skep, forge.url("locked/up"))[:2] == (6, "auth")


def test_one_that_is_no_git_server(skep: RunningSkep, forge: Forge) -> None:
    forge.fault("some/site", Fault(body=b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    assert failing(skep, forge.url("some/site"))[:2] == (6, "not_git")


def test_a_folder_that_is_no_repository(skep: RunningSkep) -> None:
    code, kind, _ = failing(skep, "file:///etc")
    assert (code, kind) == (6, "not_git")


def test_an_empty_repository_is_fine(skep: RunningSkep, forge: Forge) -> None:
    repo = forge.create("quite/empty")
    skep.cli("source", "add", forge.url("quite/empty"), "--wait")
    assert skep.rows("source", "show", forge.url("quite/empty"))[0]["state"] == "current"
    repo.commit({"first.txt": b"no longer void\n"})
    skep.cli("source", "fetch", forge.url("quite/empty"), "--wait")
    assert [row["path"] for row in skep.rows("search", '"no longer void"')] == ["first.txt"]


def test_a_repository_full_of_trouble(skep: RunningSkep, forge: Forge, tmp_path: Path) -> None:
    long = "d/" + "n" * 250 + "/" + "m" * 250 + "/" + "o" * 250 + "/" + "p" * 250 + ".txt"
    minified = b"x" * 3_000_000 + b"gemfound" + b"y" * 1_000_000
    forge.create(
        "full/trouble",
        {
            "binary.bin": b"\x00\x01gemfound\x00" * 100,
            "latin1.txt": b"caf\xe9 gemfound\n",
            b"name-\xff.txt": b"gemfound in a name that is no UTF-8\n",
            "new\nline.txt": b"gemfound\n",
            long: b"deep gemfound\n",
            "min.js": minified[:1_900_000] + b"gemfound" + b"z" * 1000,
            "huge.txt": os.urandom(3_000_000).hex().encode() + b"gemfound",
            "loop": "loop",
            "up": "../../../../etc/passwd",
            "crlf.txt": b"one\r\ngemfound\r\n",
            "empty.txt": b"",
            "<script>alert(1)</script>.txt": b"gemfound <script>alert(1)</script>\n",
        },
    )
    skep.cli("source", "add", forge.url("full/trouble"), "--wait")
    found = {row["path"]: row for row in skep.rows("search", "gemfound repo:full/trouble", "--lines", "100")}
    assert set(found) == {
        "latin1.txt",
        "name-\\xff.txt",
        "new\nline.txt",
        long,
        "min.js",
        "crlf.txt",
        "<script>alert(1)</script>.txt",
    }
    assert found["crlf.txt"]["text"] == "gemfound"
    assert len(found["min.js"]["text"]) < 1000
    by_name = skep.rows("search", r"file:binary\.bin|huge\.txt repo:full/trouble")
    assert {row["path"] for row in by_name} == {"binary.bin", "huge.txt"}
    source = skep.rows("source", "show", forge.url("full/trouble"))[0]
    for path in ("binary.bin", "huge.txt", "loop", "up", "latin1.txt"):
        status, body = skep.get(f"/api/v1/sources/{source['id']}/file?path={path}")
        assert status == 200, body
        assert "root:" not in str(body)


def test_an_invalid_regex_is_pointed_at(skep: RunningSkep) -> None:
    code, text = answer(skep, "search", "good /ba(d/")
    assert code == 2
    query, caret = next((a, b) for a, b in zip(text.splitlines(), text.splitlines()[1:], strict=False) if "^" in b)
    assert query[caret.index("^")] in "/ba(d"
    status, body = skep.get("/api/v1/search?q=good%20/ba(d/")
    assert status == 400
    assert body["error"]["code"] == "bad_query"
    assert body["error"]["column"] >= 6


@pytest.mark.parametrize("query", [r"/(a+)+$/", r"/(x+x+)+y/", r"/((a{1,100}){1,100})/", "/.*.*.*.*=.*/"])
def test_catastrophic_patterns_end(skep: RunningSkep, forge: Forge, query: str) -> None:
    if not skep.rows("search", "file:aaa.txt"):
        forge.create("long/lines", {"aaa.txt": b"a" * 100_000 + b"b\n"})
        skep.cli("source", "add", forge.url("long/lines"), "--wait")
    code, text = answer(skep, "search", query)
    assert code in (0, 1, 2), text


@pytest.mark.parametrize("query", ["", "(", '"open', "fiel:x y", "x" * 20_000])
def test_queries_that_make_no_sense(skep: RunningSkep, query: str) -> None:
    code, text = answer(skep, "search", "--", query)
    assert code == 2, text
    assert "hint" in text
