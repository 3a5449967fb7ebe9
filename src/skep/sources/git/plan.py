"""Which documents an index gains and loses when a source goes from one commit to another."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from skep.model.search import Document
from skep.sources.git.read import Entry, contents, diff_tree, list_tree, sizes

#: git itself looks this far for a zero byte
_BINARY_WITHIN = 8_000
#: bytes of content one build takes; a tree that repeats one file without end is found by name beyond
CONTENT_BUDGET = 16 << 30
_FILE = 0o100000
_TYPE = 0o170000


def changed(folder: Path, base: str | None, commit: str) -> tuple[list[Entry], list[bytes]]:
    """The files that become documents, and the paths whose older documents are dead. `base` None: everything.

    Symbolic links and submodules are no documents.
    """
    if base is None:
        return [entry for entry in list_tree(folder, commit) if _is_file(entry)], []
    moved, gone = diff_tree(folder, base, commit)
    bare = [entry for entry in moved if _is_file(entry)]
    known = sizes(folder, (entry.oid for entry in bare))
    return [entry._replace(size=known.get(entry.oid)) for entry in bare], gone


def _is_file(entry: Entry) -> bool:
    return entry.kind == "blob" and entry.mode & _TYPE == _FILE


def documents(
    folder: Path, files: Iterable[Entry], max_file: int, *, budget: int = CONTENT_BUDGET
) -> Iterator[Document]:
    """Binary and large files have no content: they are found by name. Each git blob is read once, whatever the number
    of its paths."""
    paths: dict[str, list[bytes]] = {}
    for entry in files:
        if entry.size and entry.size <= max_file:
            paths.setdefault(entry.oid, []).append(entry.path)
        else:
            yield Document(entry.path, entry.oid, b"")
    for oid, content in contents(folder, paths):
        text = b"" if content is None or b"\0" in content[:_BINARY_WITHIN] else content
        for path in paths[oid]:
            budget -= len(text)
            yield Document(path, oid, text if budget >= 0 else b"")
