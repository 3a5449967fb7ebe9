"""Folders and blobs through a stream: what is sent arrives, what is hostile does not."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, Damaged, NotFound, SkepError, TooLarge
from skep.rpc.transfer import File, send_blob, send_folder, take_blob, take_folder
from skep.storage.blobs import open_memory

LARGEST = 10 << 20


class Tape:
    """A stream that was written before it is read, in pieces of any size."""

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self.pieces = pieces or []
        self.ended = False

    async def write(self, data: bytes) -> None:
        assert data, "an empty message is an end"
        self.pieces.append(data)

    async def end(self) -> None:
        self.ended = True

    async def read(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def cut(self, size: int) -> "Tape":
        whole = b"".join(self.pieces)
        return Tape([whole[n : n + size] for n in range(0, len(whole), size)])


def make(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


async def sent(folder: Path) -> Tape:
    tape = Tape()
    await send_folder(folder, tape)
    assert tape.ended
    return tape


def part(raw: bytes, packed: bytes | None = None) -> bytes:
    packed = zstandard.ZstdCompressor().compress(raw) if packed is None else packed
    return len(packed).to_bytes(4, "big") + packed


def listed(*files: File) -> bytes:
    return part(msgspec.msgpack.encode(files))


def file(name: str, raw: bytes, **but: Any) -> File:
    return msgspec.structs.replace(File(name, len(raw), hashlib.sha256(raw).hexdigest()), **but)


async def test_a_folder_arrives_as_it_is(tmp_path: Path) -> None:
    files = {"a": b"", "shard-1/postings": os.urandom(3 << 20), "shard-1/x.y": b"abc" * 10, "plan": bytes(5 << 20)}
    folder = make(tmp_path / "from", files)
    (folder / "link").symlink_to("/etc/passwd")
    tape = await sent(folder)
    assert sum(map(len, tape.pieces)) < 4 << 20
    for n, size in enumerate((1 << 20, 1_000, 65_537)):
        await take_folder(tape.cut(size), tmp_path / f"to-{n}", LARGEST)
        assert content(tmp_path / f"to-{n}") == files


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_folder_is_never_taken(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tmp_path = tmp_path_factory.mktemp("parcel")
    files = {"a": b"abc" * 100, "b/c": bytes(2_000)}
    tape = asyncio.run(sent(make(tmp_path / "from", files)))
    whole = bytearray(b"".join(tape.pieces))
    at = data.draw(st.integers(0, len(whole) - 1))
    match data.draw(st.sampled_from(["cut", "flip", "more"])):
        case "cut":
            del whole[at:]
        case "flip":
            whole[at] ^= data.draw(st.integers(1, 255))
        case _:
            whole += data.draw(st.binary(min_size=1, max_size=50))
    try:
        asyncio.run(take_folder(Tape([bytes(whole)]), tmp_path / "to", LARGEST))
    except SkepError:
        assert not list(tmp_path.glob("to*"))
    else:  # a flipped bit that says nothing, such as one of zstd's own options
        assert content(tmp_path / "to") == files


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc/x", "a//b", "a/../b", ".git", "a/.x", "a\\b", "a\0", "é", "a\n", "x" * 101, "a/" * 9],
)
async def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Damaged, match="names"):
        await take_folder(Tape([listed(file(name, b"x")), part(b"x")]), tmp_path / "in" / "to", LARGEST)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


BOMB = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(500 << 20))
HOSTILE: dict[str, Callable[[], list[bytes]]] = {
    "twice": lambda: [listed(file("a", b"x"), file("a", b"y")), part(b"x"), part(b"y")],
    "file and folder": lambda: [listed(file("a", b"x"), file("a/b", b"y")), part(b"x"), part(b"y")],
    "folder and file": lambda: [listed(file("a/b", b"x"), file("a", b"y")), part(b"x"), part(b"y")],
    "huge": lambda: [listed(file("a", b"x", size=LARGEST + 1))],
    "negative": lambda: [listed(file("a", b"x", size=-1))],
    "longer": lambda: [listed(file("a", b"x")), part(b"xy")],
    "shorter": lambda: [listed(file("a", b"xy")), part(b"x")],
    "nothing": lambda: [listed(file("a", b"xy")), part(b""), part(b"xy")],
    "other": lambda: [listed(file("a", b"x")), part(b"y")],
    "bomb": lambda: [listed(file("a", b"x")), part(b"", BOMB)],
    "lying bomb": lambda: [listed(file("a", b"x")), part(b"", zstandard.compress(bytes(2 << 20)))],
    "long part": lambda: [listed(file("a", b"x")), b"\xff\xff\xff\xff", bytes(2 << 20)],
    "no list": lambda: [part(b"\xc1")],
    "no zstd": lambda: [part(b"", b"hello world")],
    "empty": lambda: [],
    "many": lambda: [listed(*(file(f"f{n}", b"") for n in range(10_001)))],
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_hostile_folders_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises((Damaged, TooLarge)):
        await take_folder(Tape(HOSTILE[case]()), tmp_path / "to", LARGEST)
    assert not list(tmp_path.iterdir())


async def test_a_blob_arrives_or_nothing_does(tmp_path: Path) -> None:
    one, two = await open_memory("memory:", data=tmp_path), await open_memory("memory:", data=tmp_path)
    raw = os.urandom(3 << 20)

    async def chunks() -> Any:
        yield raw

    id = (await one.put(chunks())).id
    tape = Tape()
    await send_blob(one, id, tape)
    assert (await take_blob(tape.cut(77_777), two, id, LARGEST)).size == len(raw)
    assert await two.stat(id)
    with pytest.raises(NotFound):
        await send_blob(one, "0" * 64, Tape())
    for bad, error in ((Tape([raw[:-1]]), Damaged), (Tape(), Damaged), (Tape([bytes(LARGEST + 1)]), TooLarge)):
        with pytest.raises(error):
            await take_blob(bad, two, id[::-1] if error is TooLarge else id, LARGEST)
    with pytest.raises(BadInput):
        await take_blob(Tape(), two, "../../etc", LARGEST)
    assert [info.id async for info in two.list()] == [id]
