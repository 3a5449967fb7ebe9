"""The refs of a mirror, read from its files: no process, so that a worker can look over all it holds at start."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from skep.disk import sync_file
from skep.sources.git.pktline import choose_head, to_bytes, to_text
from skep.sources.git.selection import OWN

_HEX = set(b"0123456789abcdef")


def read(folder: Path) -> dict[str, str]:
    """entry -> version; `HEAD` -> the default branch while there is one. Empty when there is no mirror."""
    oids = {name: oid for name, oid in read_all(folder).items() if not name.startswith(OWN)}
    named = _content(os.fsencode(folder / "HEAD")).removeprefix(b"ref: ")
    head = choose_head(oids, to_text(named)) if oids else ""
    return {**oids, "HEAD": head} if head else oids


def read_all(folder: Path) -> dict[str, str]:
    """Ours too."""
    oids: dict[str, str] = {}
    with suppress(FileNotFoundError):
        for line in (folder / "packed-refs").read_bytes().splitlines():
            oid, _, name = line.partition(b" ")
            if _is_oid(oid):
                oids[to_text(name)] = oid.decode()
    root = os.fsencode(folder)
    for path in _files(folder / "refs"):
        content = _content(path)
        if _is_oid(content) and not path.endswith(b".lock"):
            oids[to_text(path[len(root) + 1 :])] = content.decode()
    return oids


def set_head(folder: Path, name: str) -> None:
    line = b"ref: %s\n" % to_bytes(name)
    if _content(os.fsencode(folder / "HEAD")) + b"\n" == line:
        return
    new = folder / "HEAD.new"
    with new.open("wb") as file:
        file.write(line)
        sync_file(file)
    new.replace(folder / "HEAD")


def sweep(folder: Path) -> None:
    """Remove what a killed git leaves behind. Only under the mirror's lock: then nobody owns these files."""
    for place in (folder, folder / "objects/info"):
        for lock in place.glob("*.lock"):
            lock.unlink(missing_ok=True)
    # git writes it beside its lock and refuses to begin while it is there
    (folder / "packed-refs.new").unlink(missing_ok=True)
    for path in list(_files(folder / "refs")):
        # a ref without content is what a power cut leaves of one that was being written
        if path.endswith(b".lock") or not _content(path):
            os.unlink(path)  # noqa: PTH108 - names are bytes
    packs = folder / "objects/pack"
    for pattern in ("tmp_*", ".tmp-*", "*.keep", "*.lock"):
        for rest in (*packs.glob(pattern), *(folder / "objects/info/commit-graphs").glob(pattern)):
            rest.unlink(missing_ok=True)
    for rest in (folder / "objects").glob("tmp_objdir-*"):
        shutil.rmtree(rest, ignore_errors=True)
    for rest in (folder / "objects").glob("??/tmp_obj_*"):
        rest.unlink(missing_ok=True)


def _files(root: Path) -> Iterator[bytes]:
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118 - names are bytes


def _content(path: bytes) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - names are bytes
            return file.read(4_096).strip()
    except FileNotFoundError:
        return b""


def _is_oid(text: bytes) -> bool:
    return len(text) in {40, 64} and set(text) <= _HEX
