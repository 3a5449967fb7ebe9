"""What every Blobs promises, and what a folder adds: nothing half written is ever seen."""

import asyncio
import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.base.errors import BadInput, NoSpace, NotFound, Unavailable
from skep.processes.engines import find
from skep.storage.blobs import Blobs, open_folder
from tests.support.s3 import make_bucket, running_s3

BIG = os.urandom(3_000_000)
SECRET = "the-secret-of-s3"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with running_s3() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; its keys are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    name = f"test-{uuid.uuid4()}"
    make_bucket(s3, name)
    return f"s3://{name}/some/prefix?endpoint={s3}"


@pytest.fixture(params=["file:", "memory:", "s3:"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    url = request.getfixturevalue("bucket") if request.param == "s3:" else request.param
    opened: Blobs = await find("blobs", url)(url, data=tmp_path)
    return opened


async def chunked(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def whole(blobs: Blobs, id: str, start: int = 0) -> bytes:
    return b"".join([chunk async for chunk in blobs.open(id, start)])


async def listed(blobs: Blobs) -> dict[str, int]:
    return {info.id: info.size async for info in blobs.list()}


@pytest.mark.parametrize("data", [b"", b"a", BIG], ids=["empty", "small", "big"])
async def test_what_was_put_is_read(blobs: Blobs, data: bytes) -> None:
    info = await blobs.put(chunked(data))
    assert (info.id, info.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert await blobs.stat(info.id) == info
    assert await whole(blobs, info.id) == data
    assert await whole(blobs, info.id, len(data) // 3) == data[len(data) // 3 :]
    assert await whole(blobs, info.id, len(data)) == b""
    assert await listed(blobs) == {info.id: info.size}


async def test_the_same_bytes_are_one_blob(blobs: Blobs) -> None:
    puts = await asyncio.gather(*(blobs.put(chunked(BIG, size)) for size in (7_001, 999_999, 3_000_000)))
    other = await blobs.put(chunked(b"other"))
    assert len({info.id for info in puts}) == 1
    assert set(await listed(blobs)) == {puts[0].id, other.id}


async def test_what_is_not_there(blobs: Blobs) -> None:
    id = hashlib.sha256(b"x").hexdigest()
    assert await blobs.stat(id) is None
    await blobs.delete(id)
    with pytest.raises(NotFound, match=id):
        await whole(blobs, id)
    await blobs.put(chunked(b"x"))
    await blobs.delete(id)
    assert await listed(blobs) == {}


@pytest.mark.parametrize("id", ["", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", "/" + "a" * 63, "\0" * 64])
async def test_an_id_is_never_a_path(blobs: Blobs, id: str) -> None:
    for call in (blobs.stat(id), blobs.delete(id), whole(blobs, id)):
        with pytest.raises(BadInput, match="no blob id"):
            await call


async def test_a_negative_start_is_refused(blobs: Blobs) -> None:
    info = await blobs.put(chunked(b"abc"))
    with pytest.raises(BadInput):
        await whole(blobs, info.id, -1)


async def test_a_put_that_fails_leaves_nothing(blobs: Blobs, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BIG
        raise LookupError

    with pytest.raises(LookupError):
        await blobs.put(broken())
    assert await listed(blobs) == {}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_killed_put_leaves_nothing_listed(tmp_path: Path) -> None:
    code = """
import asyncio, pathlib, sys
from skep.storage.blobs import open_folder
async def main():
    blobs = await open_folder("file:", data=pathlib.Path(sys.argv[1]))
    async def endless():
        for _ in range(3):
            yield b"x" * 2_000_000
        print("half", flush=True)
        await asyncio.Event().wait()
        yield b""
    await blobs.put(endless())
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"half\n"
        child.kill()
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    blobs = await open_folder("file:", data=tmp_path)
    assert await listed(blobs) == {}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own answer, from the device that is always full."""
    blobs = await open_folder("file:", data=tmp_path)

    def on_a_full_disk() -> object:
        return Path("/dev/full").open("wb", buffering=0)

    monkeypatch.setattr(blobs, "_begin", on_a_full_disk)
    monkeypatch.setattr("skep.storage.blobs._abandon", lambda file: file.close())
    with pytest.raises(NoSpace, match="full"):
        await blobs.put(chunked(b"abc"))


async def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")
    with pytest.raises(Unavailable, match="blobs"):
        await open_folder("file:", data=tmp_path)


async def test_s3_keeps_what_other_prefixes_and_strangers_have(bucket: str, tmp_path: Path) -> None:
    one = await find("blobs", bucket)(bucket, data=tmp_path)
    url = bucket.replace("some/prefix", "other")
    other = await find("blobs", url)(url, data=tmp_path)
    info = await one.put(chunked(BIG * 4))  # more than stays in memory, in several parts
    assert await listed(other) == {}
    await other.delete(info.id)
    assert await whole(one, info.id, 5) == (BIG * 4)[5:]


async def test_s3_keys_may_stand_in_a_file(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "keys"
    file.write_text(f"[default]\naws_access_key_id = someone\naws_secret_access_key = {SECRET}%\n")
    url = f"{bucket}&credentials={file}"
    blobs = await find("blobs", url)(url, data=tmp_path)
    assert (await blobs.put(chunked(b"abc"))).size == 3
    file.write_text(f"aws_secret_access_key = {SECRET}\n")
    with pytest.raises(BadInput, match="keys") as told:
        await find("blobs", url)(url, data=tmp_path)
    assert SECRET not in f"{told.value} {told.value.hint}"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("s3:", "s3://BUCKET"),
        ("s3://user:word@bucket/", "without a password"),
        ("s3://bucket/?colour=red", "colour"),
        ("s3://bucket/?endpoint=http://127.0.0.1:1", "cannot be used"),
    ],
)
async def test_a_wrong_s3_url_is_told(wrong: str, told: str, bucket: str, tmp_path: Path) -> None:
    with pytest.raises((BadInput, Unavailable), match=told) as error:
        await find("blobs", wrong)(wrong, data=tmp_path)
    assert SECRET not in f"{error.value} {error.value.__cause__}"


async def test_a_bucket_that_is_not_there_is_told(bucket: str, tmp_path: Path) -> None:
    url = bucket.replace("s3://test-", "s3://none-")
    with pytest.raises(Unavailable, match="404"):
        await find("blobs", url)(url, data=tmp_path)
