"""Manifests: one conditional request follows a whole host, and a hostile one harms nothing."""

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput
from skep.sources.lists.hosts import manifest_of
from skep.sources.model import SourceList, SourceSettings
from tests.lists.conftest import ListHouse


class Host:
    """Serves a folder as any web server would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.answers: list[int] = []
        self._time = 1_000_000_000
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, self.answers, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def put(self, repositories: Any, name: str = "manifest.js.gz") -> None:
        self.write(gzip.compress(json.dumps(repositories).encode()), name)

    def write(self, data: bytes, name: str = "manifest.js.gz") -> None:
        (self.folder / name).write_bytes(data)
        self._time += 60  # dates of HTTP count seconds
        os.utime(self.folder / name, (self._time, self._time))


class _Files(SimpleHTTPRequestHandler):
    def __init__(self, answers: list[int], *args: Any, **more: Any) -> None:
        self._answers = answers
        super().__init__(*args, **more)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        self._answers.append(int(code))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path / "files")
    thread = Thread(target=found.server.serve_forever, args=(0.05,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def said(mark: str, **more: Any) -> dict[str, Any]:
    return {"fingerprint": mark, "modified": 1, "owner": None, "description": "x", "reference": None, **more}


def many(count: int) -> dict[str, Any]:
    return {f"/pub/r{n:03}.git": said(f"f{n}") for n in range(count)}


async def follow(house: ListHouse, host: Host, more: str = "") -> SourceList:
    listed = await house.lists.add(SYSTEM, f"manifest:{host.url}/manifest.js.gz{more}")
    await house.follower.step()
    return await house.lists.show(SYSTEM, listed.id)


async def again(house: ListHouse) -> None:
    house.clock.time += 61
    await house.follower.step()


async def fetches(house: ListHouse) -> list[str]:
    return [source for _, kind, source in await house.orders() if kind == "fetch"]


async def test_followed_by_one_question(house: ListHouse, host: Host) -> None:
    await house.work_for("w1")
    repositories = many(30)
    host.put(repositories | {"/pub/empty.git": said("", fingerprint=None)})
    listed = await follow(house, host)
    assert (listed.kind, listed.state, listed.entries) == ("manifest", "current", 31)
    named = await house.named()
    base = host.url.removeprefix("http://")
    moving = named[f"{base}/pub/r003"]["id"]
    assert (await house.sources.show(SYSTEM, moving)).settings == SourceSettings(poll_min=86_400.0)
    await again(house)
    await house.follower.step()
    assert host.answers == [200, 304] and await fetches(house) == []
    repositories["/pub/r003.git"] = said("moved")
    repositories["/pub/new.git"] = said("n", symlinks=["/alias.git"])
    del repositories["/pub/r000.git"]
    host.put(repositories | {"/pub/empty.git": said("", fingerprint=None, modified=2)})
    await again(house)
    assert await fetches(house) == [moving, named[f"{base}/pub/empty"]["id"]]
    after = await house.named()
    assert set(after) ^ set(named) == {f"{base}/pub/new", f"{base}/pub/r000"}


async def test_a_manifest_that_lost_much_waits(house: ListHouse, host: Host) -> None:
    host.put(many(40))
    listed = await follow(house, host)
    host.put(many(20))
    await again(house)
    shown = await house.lists.show(SYSTEM, listed.id)
    assert (shown.state, shown.waiting) == ("waiting", 20) and len(await house.named()) == 40
    host.put(many(20) | {"/pub/r001.git": said("moved")})  # fingerprints are no other version
    await again(house)
    await house.lists.confirm(SYSTEM, listed.id, shown.version)
    await house.follower.step()
    assert len(await house.named()) == 20


async def test_its_paths_may_begin_elsewhere(house: ListHouse, host: Host) -> None:
    host.write(json.dumps({"/a/b c.git": said("1")}).encode())
    await follow(house, host, "#https://git.example.org/scm/")
    assert [row["url"] for row in (await house.named()).values()] == ["https://git.example.org/scm/a/b%20c.git"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        gzip.compress(b'{"/a.git": {}}')[:-9],
        b"\x1f\x8b nonsense",
        gzip.compress(b'{"/a.git": "' + b" " * 300_000_000, 1),
        zlib.compress(b"{}"),
        b'{"/\xff.git": {}}',
        json.dumps({f"/r{n}": {} for n in range(100_001)}).encode(),
    ],
    ids=["empty", "html", "array", "cut", "gzip", "bomb", "zlib", "bytes", "many"],
)
async def test_what_is_no_manifest_removes_nothing(house: ListHouse, host: Host, body: bytes) -> None:
    host.put(many(3))
    listed = await follow(house, host)
    host.write(body)
    await again(house)
    shown = await house.lists.show(SYSTEM, listed.id)
    assert shown.state == "failing" and len(await house.named()) == 3
    (host.folder / "manifest.js.gz").unlink()
    await again(house)
    assert "no manifest at" in (await house.lists.show(SYSTEM, listed.id)).failure
    host.put(many(4))
    await again(house)
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current" and len(await house.named()) == 4


async def test_hostile_entries_are_problems_of_their_own(house: ListHouse, host: Host) -> None:
    bad: dict[str, Any] = {"/../etc.git": {}, "relative.git": {}, "//x.git": {}, "/n\nl.git": {}, "/q.git": [], "": {}}
    bad |= {"/x.git": {"fingerprint": 7}, "/" + "a" * 2_000: {}, "/a/./b.git": {}}
    host.put(bad | {"/<script>.git": {}, "/--upload-pack=x.git": said("1"), "/good?x#y.git": said("1")})
    listed = await follow(house, host)
    assert listed.problems == len(bad)
    urls = sorted(row["url"].removeprefix(host.url) for row in (await house.named()).values())
    assert urls == ["/%3Cscript%3E.git", "/--upload-pack%3Dx.git", "/good%3Fx%23y.git"]


async def test_folders_of_this_machine_and_private_networks_are_not_named(house: ListHouse, host: Host) -> None:
    host.put(many(2))
    assert (await follow(house, host, "#file:///etc")).problems == 2
    listed = await house.lists.add(SYSTEM, "manifest:http://10.0.0.1/manifest.js.gz")
    await house.follower.step()
    assert "private address" in (await house.lists.show(SYSTEM, listed.id)).failure


@pytest.mark.parametrize("text", ["manifest:", "manifest:/etc/passwd", "manifest:file:///x", "manifest:https:///x"])
def test_wrong_manifest_addresses(text: str) -> None:
    with pytest.raises(BadInput):
        manifest_of(text)
