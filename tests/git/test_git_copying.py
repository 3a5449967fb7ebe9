"""A mirror copied from a mirror through a stream: real git on both sides, streams that break on request."""

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skep.base.errors import NotFound, Unavailable
from skep.base.io import SocketStream, Stream, socket_pair
from skep.sources.git import repository
from skep.sources.git.mirror import Mirror
from skep.sources.git.mirror_copy import Bounds, fetch_through, nothing_told
from skep.sources.git.process import give
from skep.sources.model import Failure, Progress
from tests.support.forge import Forge
from tests.support.forge.follower import Follow

BOUNDS = Bounds(seconds=60, largest=1 << 30)
URL = "https://example.org/copied"


class Cut:
    """Lets so many bytes through and then breaks. `begun`: awaited once the other side runs, and was asked nothing."""

    def __init__(self, stream: Stream, budget: int, begun: Callable[[], Awaitable[None]] | None = None) -> None:
        self._stream = stream
        self._budget = budget
        self._begun = begun
        self.carried = 0

    async def read(self) -> bytes:
        data = await self._stream.read()
        if not self.carried and self._begun:
            await self._begun()
        self.carried += len(data)
        if self.carried > self._budget:
            raise Unavailable("the tunnel broke off")
        return data

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def end(self) -> None:
        await self._stream.end()


class Holder:
    """The other machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.budget = 1 << 40
        self.streams: list[Cut] = []
        #: those of them that lasted
        self.lasted = 0
        #: what becomes of it while the stream of this number is open
        self.fate: dict[int, Callable[[], Awaitable[None]]] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Stream]:
        async with socket_pair() as (near, theirs):
            reader, writer = await asyncio.open_connection(sock=theirs.dup())
            far = SocketStream(reader, writer)
            giving = asyncio.create_task(give(self.folder, far))
            self.streams.append(Cut(near, self.budget, self.fate.get(len(self.streams))))
            try:
                yield self.streams[-1]
                self.lasted += self.streams[-1].carried <= self.budget
            finally:
                giving.cancel()
                await asyncio.gather(giving, return_exceptions=True)
                far.close()


async def copied(holder: Holder, into: Path, bounds: Bounds = BOUNDS) -> dict[str, str]:
    found = await fetch_through(into, URL, holder.opened, nothing_told, bounds, lambda _: None, 1.0)
    assert not isinstance(found, Failure), found
    return dict(found)


def same(one: Path, other: Path) -> None:
    assert repository.read_all(one) == repository.read_all(other)
    assert (one / "HEAD").read_bytes() == (other / "HEAD").read_bytes()
    subprocess.run(["git", "-C", other, "fsck", "--full", "--strict"], check=True, capture_output=True)


async def test_every_ref_as_it_stands_there(forge: Forge, follow: Follow, tmp_path: Path) -> None:
    repo = forge.create("one", {"a": b"1"})
    repo.branch("a/b")
    repo.branch("x\xff")
    repo.tag("v1", annotated=True)
    repo.set_head("a/b")
    repo.commit({"a": b"soon rewritten"})
    mirror = follow(forge.url("one"))
    await mirror.succeed()
    holder, into = Holder(mirror.folder), tmp_path / "copies" / "one.git"
    assert await copied(holder, into) == await mirror.succeed()
    same(mirror.folder, into)
    assert (into / "url").read_text() == URL + "\n"
    # rewritten, deleted, a branch where a folder was, old tips kept under hidden names
    repo.force_push({"a": b"2"})
    repo.delete_branch("a/b")
    repo.branch("a")
    repo.set_head("main")
    await mirror.succeed()
    assert any(name.startswith("refs/skep/kept/") for name in repository.read_all(mirror.folder))
    assert await copied(holder, into) == await mirror.succeed()
    same(mirror.folder, into)
    # nothing moved: one stream to ask
    asked = len(holder.streams)
    await copied(holder, into)
    assert len(holder.streams) == asked + 1
    # all but one are gone: the holder has asked a person about that, nobody is asked again
    for name in repository.read_all(mirror.folder):
        if name not in ("refs/heads/main", "HEAD"):
            subprocess.run(["git", "-C", mirror.folder, "update-ref", "-d", name], check=True)
    assert set(await copied(holder, into)) == {"refs/heads/main", "HEAD"}
    same(mirror.folder, into)


@pytest.mark.parametrize("form", ["sha1", "sha256"])
async def test_empty_and_other_formats(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", f"--object-format={form}", folder], check=True)
    assert await copied(Holder(folder), tmp_path / "here.git") == {}
    subprocess.run(["rm", "-r", tmp_path / "here.git"], check=True)
    made = subprocess.run(["git", "-C", folder, "mktree"], input=b"", check=True, capture_output=True)
    tree = made.stdout.decode().strip()
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "m", tree]
    commit = subprocess.run(command, check=True, capture_output=True).stdout.decode().strip()
    subprocess.run(["git", "-C", folder, "update-ref", "refs/heads/master", commit], check=True)
    assert (await copied(Holder(folder), tmp_path / "here.git"))["refs/heads/master"] == commit


def _long_history(folder: Path, commits: int) -> None:
    """Incompressible, so that its size is known: 1 kB in each commit."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", folder], check=True)
    noise = random.Random(1)
    lines = []
    for n in range(commits):
        lines.append(b"commit refs/heads/main\nmark :%d\ncommitter n <e> %d +0000\ndata 1\nm" % (n + 1, 1_000_000 + n))
        lines.append(b"M 100644 inline f%d\ndata 1000\n%s\n" % (n % 50, noise.randbytes(1_000)))
    for n in range(20):
        lines.append(b"reset refs/tags/t%d\nfrom :%d\n" % (n, commits - n))
    subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input=b"\n".join(lines), check=True)


async def test_a_copy_that_breaks_off_again_and_again_arrives(tmp_path: Path) -> None:
    """No connection lasts for more than a third of it, and what has arrived is not brought again."""
    there, into = tmp_path / "there.git", tmp_path / "here.git"
    _long_history(there, 1_000)
    holder = Holder(there)
    holder.budget = 350_000
    await copied(holder, into)
    same(there, into)
    assert not (into / "shallow").exists()
    assert not (into / "todo").exists()
    assert holder.lasted > 5
    assert sum(stream.carried for stream in holder.streams) < 8_000_000


async def test_a_copy_goes_on_where_another_process_stopped(tmp_path: Path) -> None:
    there, into = tmp_path / "there.git", tmp_path / "here.git"
    _long_history(there, 500)
    holder = Holder(there)
    holder.budget = 250_000
    once = Bounds(seconds=60, largest=1 << 30, breaks=1)
    failed = await fetch_through(into, URL, holder.opened, nothing_told, once, lambda _: None, 1.0)
    assert isinstance(failed, Failure) and failed.kind == "network"
    await copied(holder, into)
    same(there, into)


async def test_a_shallow_mirror_is_copied_as_it_is(tmp_path: Path) -> None:
    whole, there, into = tmp_path / "whole.git", tmp_path / "there.git", tmp_path / "here.git"
    _long_history(whole, 60)
    subprocess.run(["git", "clone", "-q", "--bare", "--depth=10", f"file://{whole}", there], check=True)
    await copied(Holder(there), into)
    same(there, into)
    assert (into / "todo").read_text() == "deepen"


async def test_what_is_unsound_or_too_big_is_refused(tmp_path: Path) -> None:
    there = tmp_path / "there.git"
    _long_history(there, 500)
    small = Bounds(seconds=60, largest=100_000)
    found = await fetch_through(
        tmp_path / "small.git", URL, Holder(there).opened, nothing_told, small, lambda _: None, 1.0
    )
    assert isinstance(found, Failure) and found.kind == "too_big"
    bad = (
        subprocess.run(
            ["git", "-C", there, "hash-object", "-t", "tree", "-w", "--stdin", "--literally"],
            input=b"100644 .git\0" + bytes(20),
            check=True,
            capture_output=True,
        )
        .stdout.decode()
        .strip()
    )
    command = ["git", "-C", str(there), "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "m", bad]
    commit = subprocess.run(command, check=True, capture_output=True).stdout.strip()
    subprocess.run(["git", "-C", there, "update-ref", "refs/heads/evil", commit], check=True)
    found = await fetch_through(
        tmp_path / "evil.git", URL, Holder(there).opened, nothing_told, BOUNDS, lambda _: None, 1.0
    )
    assert isinstance(found, Failure) and found.kind == "corrupt"
    assert repository.read_all(tmp_path / "evil.git") == {}


async def test_garbage_and_refusals(tmp_path: Path) -> None:
    into = tmp_path / "here.git"

    @asynccontextmanager
    async def garbage() -> AsyncIterator[Stream]:
        async with socket_pair() as (ours, theirs):
            theirs.send(b"HTTP/1.1 200 OK\r\n\r\n<html>")
            yield ours

    few = Bounds(seconds=0.5, largest=1 << 30, breaks=1)
    found = await fetch_through(into, URL, garbage, nothing_told, few, lambda _: None, 1.0)
    assert isinstance(found, Failure)

    tried = 0

    @asynccontextmanager
    async def refused() -> AsyncIterator[Stream]:
        nonlocal tried
        tried += 1
        raise NotFound("wrk_1 does not hold it")
        yield

    with pytest.raises(NotFound):
        await fetch_through(into, URL, refused, nothing_told, BOUNDS, lambda _: None, 1.0)
    assert tried == 1
    assert not into.exists()


async def test_a_giver_that_says_nothing_meets_the_deadline(tmp_path: Path) -> None:
    @asynccontextmanager
    async def silent() -> AsyncIterator[Stream]:
        async with socket_pair() as (ours, _):
            yield ours

    hasty = Bounds(seconds=0.3, largest=1 << 30, breaks=0)
    found = await fetch_through(tmp_path / "here.git", URL, silent, nothing_told, hasty, lambda _: None, 1.0)
    assert isinstance(found, Failure) and "longer than" in found.message


async def test_progress_is_told(forge: Forge, follow: Follow, tmp_path: Path) -> None:
    forge.create("one", {"a": b"1"})
    mirror = follow(forge.url("one"))
    await mirror.succeed()
    told: list[Progress] = []
    await fetch_through(tmp_path / "c.git", URL, Holder(mirror.folder).opened, nothing_told, BOUNDS, told.append, 1.0)
    assert told and told[-1].done == 80  # there are no deltas in it


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["announcement", "fetch", "old tips"])
async def test_whoever_lets_go_of_it_meanwhile_has_not_given_it(
    forge: Forge, follow: Follow, tmp_path: Path, stream: int
) -> None:
    repo = forge.create("one", {"a": b"1"})
    repo.branch("other")
    mirror, into = follow(forge.url("one")), tmp_path / "copy.git"
    told = await mirror.succeed()
    await copied(Holder(mirror.folder), into)
    before = repository.read_all(into)
    repo.force_push({"a": b"2"})
    newest = await mirror.succeed()
    assert newest != told
    holder = Holder(mirror.folder)
    holder.fate[stream] = Mirror(mirror.folder).remove
    found = await fetch_through(into, URL, holder.opened, saying(told), BOUNDS, lambda _: None, 1.0)
    assert isinstance(found, Failure) and found.kind == "network", found
    # nothing that was there is lost; what has arrived stays
    assert (
        repository.read_all(into).items()
        >= (before if stream < 2 else {"refs/heads/main": newest["refs/heads/main"]}).items()
    )


def saying(*told: Mapping[str, str]) -> Callable[[], Awaitable[Mapping[str, str]]]:
    """One after the other; the last again and again."""
    left = list(told)

    async def say() -> Mapping[str, str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return say


async def test_a_copy_counts_when_it_has_what_was_told(forge: Forge, follow: Follow, tmp_path: Path) -> None:
    repo = forge.create("one", {"a": b"1"})
    mirror, into = follow(forge.url("one")), tmp_path / "copy.git"
    old = await mirror.succeed()
    new = {**old, "refs/heads/main": repo.commit({"a": b"2"})}
    holder, once = Holder(mirror.folder), Bounds(seconds=60, largest=1 << 30, breaks=0)

    async def bring(*told: Mapping[str, str]) -> Mapping[str, str] | Failure:
        return await fetch_through(into, URL, holder.opened, saying(*told), once, lambda _: None, 1.0)

    # it became the holder's a moment ago, and has not fetched yet
    found = await bring(new)
    assert isinstance(found, Failure) and "not where it was told" in found.message
    assert await bring(old) == old
    # it is ahead, and tells so while it is copied
    await mirror.succeed()
    assert isinstance(await bring(old), Failure)
    assert await bring(old, new) == new
    # it was told so before it was copied, and changed again meanwhile
    assert await bring(new, {**new, "refs/heads/main": "0" * 40}) == new
    # nothing is there any more: only if that was told
    for name in repository.read_all(mirror.folder):
        subprocess.run(["git", "-C", mirror.folder, "update-ref", "-d", name], check=True)
    found = await bring(new)
    assert isinstance(found, Failure) and "lacks 2 of 2 entries, such as HEAD" in found.message
    assert repository.read(into) == new
    assert await bring({}) == {}


async def test_a_copy_of_a_shallow_mirror_follows_it(tmp_path: Path) -> None:
    """All of its branches, however deep the history becomes meanwhile."""
    whole, there, into = tmp_path / "whole.git", tmp_path / "there.git", tmp_path / "here.git"
    _long_history(whole, 60)
    subprocess.run(["git", "clone", "-q", "--bare", "--depth=10", f"file://{whole}", there], check=True)
    await copied(Holder(there), into)
    fetch = ["git", "-C", str(there), "fetch", "-q"]
    subprocess.run([*fetch, "--deepen=10", "origin", "main:main", "t3:refs/heads/other"], check=True)
    await copied(Holder(there), into)
    same(there, into)
    subprocess.run([*fetch, "--unshallow", "origin", "main:main"], check=True)
    await copied(Holder(there), into)
    same(there, into)
    assert not (into / "shallow").exists()
