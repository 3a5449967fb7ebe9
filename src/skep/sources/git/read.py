"""Reading a mirror's content for an index: git processes, streamed. Plain functions, for index processes."""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from skep.errors import Damaged, TooLarge
from skep.sources.git.process import environment

#: a small pack can describe a tree of a thousand million paths
MOST_ENTRIES = 2_000_000
_BLOCK = 1 << 16


class Entry(NamedTuple):
    mode: int
    #: "blob", "commit" (a submodule) or "tree"
    kind: str
    oid: str
    #: bytes of a blob; None for others, and where git does not say
    size: int | None
    path: bytes
    #: bit n: the n-th of the commits that were read has it
    branches: int = 1


def list_tree(folder: Path, commit: str, most: int = MOST_ENTRIES) -> Iterator[Entry]:
    """Every path of a commit; TooLarge after `most`."""
    with _git(folder, "ls-tree", "-r", "-z", "--long", "--full-tree", commit) as out:
        for count, record in enumerate(_records(out)):
            if count >= most:
                raise TooLarge(f"commit {commit[:12]} has more than {most:,} files")
            yield entry_of(record)


def diff_tree(folder: Path, base: str, commit: str, most: int = MOST_ENTRIES) -> tuple[list[Entry], list[bytes]]:
    """What stands in `commit` and did not in `base`, and the paths of `base` that are replaced or gone."""
    changed: list[Entry] = []
    gone: list[bytes] = []
    args = ("diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-commit-id", "--abbrev=64", base, commit)
    with _git(folder, *args) as out:
        records = _records(out)
        for head in records:
            before, mode, _, oid, _ = head.lstrip(b":").split(b" ")
            path = next(records)
            if len(changed) + len(gone) >= 2 * most:
                raise TooLarge(f"commit {commit[:12]} changes more than {most:,} files")
            if int(before, 8):
                gone.append(path)
            if int(mode, 8):
                kind = "commit" if mode == b"160000" else "blob"
                changed.append(Entry(int(mode, 8), kind, oid.decode(), None, path))
    return changed, gone


def sizes(folder: Path, oids: Iterable[str]) -> dict[str, int]:
    """Bytes of each git blob; those that are missing are left out."""
    with _fed(folder, oids, "--batch-check=%(objectname) %(objectsize)") as out:
        pairs = (line.split() for line in out)
        return {pair[0].decode(): int(pair[1]) for pair in pairs if pair[1].isdigit()}


def contents(folder: Path, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """Each git blob in the given order, one in memory at a time; None when the mirror lacks it."""
    with _fed(folder, oids, "--batch") as out:
        for line in out:
            oid, kind, *size = line.split()
            if kind == b"missing" or not size:
                yield oid.decode(), None
                continue
            content = out.read(int(size[0]))
            out.read(1)
            yield oid.decode(), content


def entry_of(record: bytes) -> Entry:
    """`100644 blob <oid> <size>\\t<path>`, as `ls-tree --long` prints it."""
    head, _, path = record.partition(b"\t")
    mode, kind, oid, size = head.split()
    return Entry(int(mode, 8), kind.decode(), oid.decode(), int(size) if size.isdigit() else None, path)


@contextmanager
def _git(folder: Path, *args: str, stdin: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """Git's output as a stream; Damaged when git fails before its end was reached."""
    with tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            ["git", "-C", str(folder), *args],
            env=environment(),
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
        assert child.stdout
        finished = False
        try:
            yield child.stdout
            finished = True
        finally:
            child.stdout.close()
            if not finished:
                child.kill()
            code = child.wait()
        if code:
            err.seek(0)
            said = err.read(400).decode("utf-8", "replace").strip()
            raise Damaged(f"{folder.name} cannot be read: {said}", hint="fetch the source again")


@contextmanager
def _fed(folder: Path, oids: Iterable[str], how: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as wanted:
        wanted.writelines(oid.encode() + b"\n" for oid in oids)
        wanted.seek(0)
        with _git(folder, "cat-file", how, "--buffer", stdin=wanted) as out:
            yield out


def _records(out: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while block := out.read(_BLOCK):
        *records, rest = (rest + block).split(b"\0")
        yield from records
