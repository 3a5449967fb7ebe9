"""The files of a list in its mirror: which there are, what each depends on, and what they say. Plain, for a thread."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from skep.sources.git.read import Entry as TreeEntry
from skep.sources.git.read import contents, list_tree
from skep.sources.lists.parse import Parsed, ToAddress, ToSettings, parse, parse_defaults
from skep.sources.lists.yaml import LARGEST, Node, Problem

DEFAULTS = "DEFAULTS"
MOST_FILES = 100_000


class File(msgspec.Struct, frozen=True):
    path: str
    #: None: too large to be read
    oid: str | None
    #: git blobs of the DEFAULTS files above it, nearest last
    defaults: tuple[str, ...]

    @property
    def stamp(self) -> str:
        """The file says the same as long as this is the same."""
        return hashlib.blake2b("\0".join((self.oid or "", *self.defaults)).encode(), digest_size=16).hexdigest()


def files(folder: Path, commit: str) -> list[File]:
    """TooLarge when there are more than a list may have."""
    found = [entry for entry in list_tree(folder, commit, MOST_FILES) if entry.mode in (0o100644, 0o100755)]
    defaults = {_path(entry).parent: entry.oid for entry in found if _path(entry).name == DEFAULTS and _fits(entry)}
    listed = [(_path(entry), entry) for entry in found if is_list(_path(entry))]
    return [
        File(str(path), entry.oid if _fits(entry) else None, tuple(_above(path, defaults))) for path, entry in listed
    ]


def is_list(path: PurePosixPath) -> bool:
    """`any/where.yaml`, and files without an ending in folders: `l/linux/linux`."""
    if path.name == DEFAULTS or any(part.startswith(".") for part in path.parts):
        return False
    return path.suffix in (".yaml", ".yml") or (not path.suffix and len(path.parts) > 1)


def read_files(
    folder: Path, wanted: Sequence[File], address: ToAddress, settings: ToSettings
) -> Iterator[tuple[File, Parsed]]:
    """DEFAULTS that cannot be used are told with each file below them."""
    shared = dict.fromkeys(oid for file in wanted for oid in file.defaults)
    defaults = {oid: parse_defaults(data or b"") for oid, data in _contents(folder, shared)}
    texts = dict(_contents(folder, dict.fromkeys(file.oid for file in wanted if file.oid)))
    for file in wanted:
        data = texts.get(file.oid) if file.oid else None
        if data is None:
            reason = "cannot be read" if file.oid else f"is larger than {LARGEST:,} bytes"
            yield file, Parsed([], [Problem(1, f"the file {reason}")])
            continue
        merged: dict[str, Node] = {}
        for oid in file.defaults:
            merged |= defaults[oid][0]
        parsed = parse(file.path, data, merged, address, settings)
        wrong = [Problem(p.line, f"{DEFAULTS}: {p.message}") for oid in file.defaults for p in defaults[oid][1]]
        yield file, msgspec.structs.replace(parsed, problems=parsed.problems + wrong)


def _contents(folder: Path, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    wanted = list(oids)
    return contents(folder, wanted) if wanted else iter(())


def _above(path: PurePosixPath, defaults: dict[PurePosixPath, str]) -> Iterator[str]:
    return (defaults[folder] for folder in reversed(path.parents) if folder in defaults)


def _path(entry: TreeEntry) -> PurePosixPath:
    return PurePosixPath(entry.path.decode("utf-8", "backslashreplace"))


def _fits(entry: TreeEntry) -> bool:
    return entry.size is not None and entry.size <= LARGEST
