"""Which documents an index gains and loses when the tips of a source move."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from skep.analysis.language import classify
from skep.config import Settings
from skep.errors import BadInput
from skep.globs import Glob, compile_globs
from skep.model.search import GENERATED, Document, Tip, digest
from skep.sources.git.read import Entry, contents, diff_tree, list_tree, sizes

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
