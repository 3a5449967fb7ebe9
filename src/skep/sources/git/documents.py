"""Which documents an index gains and loses when the tips of a source move."""

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from skep.base.errors import BadInput, Damaged, TooLarge
from skep.base.globs import Glob, compile_globs
from skep.config.settings import Settings
from skep.languages.languages import classify
from skep.sources.git.process import environment
from skep.storage.code_index.model import GENERATED, Document, Tip, digest

# Reading a mirror's content for an index: git processes, streamed. Plain functions, for index processes.

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


#: in the root of a repository: patterns of paths that no index should hold
IGNORE_FILE = b".skepignore"
#: of what is made of a file; a new one makes every index anew
_VERSION = 2
#: git itself looks this far for a zero byte
_BINARY_WITHIN = 8_000
#: bytes of content one build takes; a tree that repeats one file without end is found by name beyond
CONTENT_BUDGET = 16 << 30
_FILE = 0o100000
_TYPE = 0o170000
#: bytes of an ignore file that are read, and patterns
_MOST_BYTES, _MOST_IGNORES = 20_000, 1_000


class Rules(msgspec.Struct, frozen=True):
    """What of a repository goes into its index."""

    #: larger files are found by name only
    max_file: int
    ignore: tuple[str, ...] = ()
    #: False: generated files are found by name only
    generated: bool = True


def rules_of(settings: Settings) -> Rules:
    return Rules(settings.index_max_file, settings.index_ignore, settings.index_generated)


def stamp(rules: Rules) -> str:
    """Changes with the rules, so that what others made is not built upon."""
    return hashlib.blake2b(msgspec.json.encode((_VERSION, rules)), digest_size=8).hexdigest()


class Ignored:
    """Patterns as in a .gitignore, except that `!` takes back what any other line ignores, wherever it stands."""

    def __init__(self, lines: Iterable[str]) -> None:
        kept = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
        self._out = _globs([line for line in kept if not line.startswith("!")])
        self._back = _globs([line[1:] for line in kept if line.startswith("!")])

    def __contains__(self, path: bytes) -> bool:
        if self._out is None:
            return False
        text = path.decode("utf-8", "replace")
        return bool(self._out.fullmatch(text)) and not (self._back and self._back.fullmatch(text))


def _globs(lines: list[str]) -> Glob | None:
    """A name without a slash may be anywhere; what names a folder names all in it."""
    patterns: list[str] = []
    for line in lines:
        bare = line.strip("/")
        anywhere = "" if "/" in line.rstrip("/") else "**/"
        patterns += [f"{anywhere}{bare}/**"] if line.endswith("/") else [f"{anywhere}{bare}", f"{anywhere}{bare}/**"]
    return compile_globs(patterns, "ignored paths", _MOST_IGNORES) if patterns else None


def ignored(folder: Path, commit: str, given: Sequence[str]) -> Ignored:
    """What the settings say and what the repository says itself, as far as that can be understood."""
    text = read_ignore_file(folder, commit)
    try:
        return Ignored([*given, *text.decode("utf-8", "replace").splitlines()])
    except BadInput:
        return Ignored(given)


def read_ignore_file(folder: Path, commit: str) -> bytes:
    found = dict(contents(folder, [f"{commit}:{IGNORE_FILE.decode()}"]))
    return (next(iter(found.values()), None) or b"")[:_MOST_BYTES]


def changed(
    folder: Path, base: Sequence[Tip] | None, tips: Sequence[Tip], ignore: Ignored | None = None
) -> tuple[list[Entry], list[bytes]]:
    """The files that become documents, and the paths whose older documents are dead. `base` None: everything.

    A path whose file differs between the tips is several documents; when it moves on one of them, all are made anew.
    """
    ignore = ignore or Ignored(())
    if base is None:
        return _everything(folder, tips, ignore), []
    moved: list[Entry] = []
    touched: list[bytes] = []
    for before, after in zip(base, tips, strict=True):
        if before.commit != after.commit:
            files, gone = diff_tree(folder, before.commit, after.commit)
            moved += files
            touched += gone
    if len(tips) > 1:
        touched = list({*touched, *(entry.path for entry in moved)})
        moved = _everything(folder, tips, ignore, frozenset(touched)) if touched else []
        return moved, touched
    bare = [entry for entry in moved if _is_file(entry) and entry.path not in ignore]
    known = sizes(folder, (entry.oid for entry in bare))
    return [entry._replace(size=known.get(entry.oid)) for entry in bare], touched


def expected(folder: Path, tips: Sequence[Tip], given: Sequence[str]) -> str:
    """The digest of an index that holds what it should at these tips."""
    entries = _everything(folder, tips, ignored(folder, tips[0].commit, given))
    return digest((entry.path, entry.oid, entry.branches) for entry in entries)


def _everything(
    folder: Path, tips: Sequence[Tip], ignore: Ignored, only: frozenset[bytes] | None = None
) -> list[Entry]:
    """Symbolic links and submodules are no documents."""
    if len(tips) == 1 and only is None:
        return [entry for entry in list_tree(folder, tips[0].commit) if _is_file(entry) and entry.path not in ignore]
    found: dict[tuple[bytes, str], Entry] = {}
    for n, tip in enumerate(tips):
        for entry in list_tree(folder, tip.commit):
            if not _is_file(entry) or (only is not None and entry.path not in only) or entry.path in ignore:
                continue
            known = found.get((entry.path, entry.oid))
            found[entry.path, entry.oid] = entry._replace(branches=(known.branches if known else 0) | 1 << n)
    return list(found.values())


def _is_file(entry: Entry) -> bool:
    return entry.kind == "blob" and entry.mode & _TYPE == _FILE


def is_text(content: bytes) -> bool:
    return b"\0" not in content[:_BINARY_WITHIN]


def documents(
    folder: Path, files: Iterable[Entry], rules: Rules, *, budget: int = CONTENT_BUDGET
) -> Iterator[Document]:
    """Binary and large files have no content: they are found by name. Each git blob is read once, whatever the number
    of its paths."""
    paths: dict[str, list[tuple[bytes, int]]] = {}
    for entry in files:
        if entry.size and entry.size <= rules.max_file:
            paths.setdefault(entry.oid, []).append((entry.path, entry.branches))
        else:
            yield Document(entry.path, entry.oid, b"", *classify(entry.path, b""), entry.branches)
    for oid, content in contents(folder, paths):
        text = content if content is not None and is_text(content) else b""
        for path, branches in paths[oid]:
            budget -= len(text)
            language, marks = classify(path, text)
            hidden = budget < 0 or (marks & GENERATED and not rules.generated)
            yield Document(path, oid, b"" if hidden else text, language, marks, branches)
