"""Archives that strangers made: zip, tar and tar.gz. Nothing of one is believed before it is looked at.

Only plain files and folders with plain names are let in, and never more of them than the bounds say, whatever the
archive claims: what it unfolds to is counted while it is read.
"""

import errno
import gzip
import io
import re
import shutil
import stat
import struct
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from skep.base.errors import BadInput, NoSpace, TooLarge, Unavailable
from skep.packages.api import MANIFEST, Manifest
from skep.tasks.model import ContextSpec, TaskSpec

_BLOCK = 1 << 16
_LONGEST_NAME, _DEEPEST = 500, 32
_LARGEST_MANIFEST = 1_000_000
#: a long name or the like; the library reads it into memory
_LARGEST_HEADER = 1 << 16
#: of a zip: its list of entries, which the library reads into memory
_LARGEST_LIST = 32 << 20
#: below this nobody asks how often it folds
_SMALL = 16 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
_UNREADABLE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, struct.error),
    *(EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError, ValueError),
)


class Bounds(NamedTuple):
    """Of what an archive unfolds to."""

    unpacked: int
    files: int = 100_000
    #: how many times the size of the archive
    ratio: int = 200


class _Entry(NamedTuple):
    name: str
    folder: bool
    executable: bool
    #: None of a folder
    content: IO[bytes] | None


class _Meter:
    def __init__(self, size: int, bounds: Bounds) -> None:
        self._size = size
        self._bounds = bounds
        self._read = 0

    def count(self, data: bytes) -> bytes:
        self._read += len(data)
        if self._read > self._bounds.unpacked:
            raise TooLarge(f"this archive unfolds to more than {self._bounds.unpacked:,} bytes")
        if self._read > max(_SMALL, self._bounds.ratio * self._size):
            raise TooLarge(f"this archive unfolds to more than {self._bounds.ratio} times its own size")
        return data


class _Metered:
    """What a tar is read from: its headers count too."""

    def __init__(self, inner: Any, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self._last = b""

    def read(self, size: int) -> bytes:
        data = self._meter.count(self._inner.read(size))
        self._last = (self._last + data)[-tarfile.BLOCKSIZE :]
        return data

    def finish(self) -> None:
        """To the checksum of a gz; the library takes a tar that was cut off for a shorter one."""
        while self.read(_BLOCK):
            continue
        if self._last != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it was cut off")


def unpack(archive: Path, bounds: Bounds, into: Path | None = None) -> bytes:
    """Its manifest. Without `into` it is only looked at, every byte of it."""
    manifest: bytes | None = None
    names = _Names(bounds.files)
    try:
        with archive.open("rb") as file:
            for entry in _entries(file, _Meter(archive.stat().st_size, bounds)):
                if not (name := names.add(entry)):
                    continue
                content = entry.content
                if name == MANIFEST and content:
                    manifest = content.read(_LARGEST_MANIFEST + 1)
                    content = io.BytesIO(manifest)
                _take(entry, content, into / name if into else None)
    except _UNREADABLE as error:
        raise BadInput(f"this archive cannot be read: {error}", hint="packages are zip, tar or tar.gz") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # it sends its reader to where nothing can be
            raise BadInput("this archive cannot be read") from None
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (NoSpace if full else Unavailable)(f"{into or archive}: {error.strerror}") from error
    if manifest is None:
        raise BadInput(f"there is no {MANIFEST} at the top of this archive", hint="`skep package build` makes packages")
    if len(manifest) > _LARGEST_MANIFEST:
        raise TooLarge(f"{MANIFEST} has more than {_LARGEST_MANIFEST:,} bytes")
    return manifest


def _take(entry: _Entry, content: IO[bytes] | None, path: Path | None) -> None:
    if path is not None:
        (path if entry.folder else path.parent).mkdir(parents=True, exist_ok=True)
    if content is None:
        return
    if path is None:
        while content.read(_BLOCK):
            continue
        return
    with path.open("xb") as out:
        shutil.copyfileobj(content, out, _BLOCK)
    path.chmod(0o755 if entry.executable else 0o644)


class _Names:
    """Each once, and none of a file as if it were a folder: or the second would be written through the first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, entry: _Entry) -> str:
        """As a path within a folder; empty: the folder itself."""
        name = entry.name.removeprefix("./").removesuffix("/")
        if name in ("", ".") and entry.folder:
            return ""
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or len(name) > _LONGEST_NAME or len(parts) > _DEEPEST:
            raise BadInput(f"{name[:100]!r} is no name for a file in a package")
        if any(part in ("", ".", "..") for part in parts):
            raise BadInput(f"{name[:100]!r} leads out of the package, or nowhere")
        above = {"/".join(parts[:n]) for n in range(1, len(parts))}
        if name in self._files or above & self._files or (name in self._folders and not entry.folder):
            raise BadInput(f"{name[:100]!r} is in this archive twice")
        (self._folders if entry.folder else self._files).add(name)
        self._folders |= above
        if len(self._files) + len(self._folders) > self._most:
            raise TooLarge(f"this archive has more than {self._most:,} files and folders")
        return name


def _entries(file: IO[bytes], meter: _Meter) -> Iterator[_Entry]:
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(b"PK"):
        return _in_zip(file, meter)
    inner: Any = gzip.GzipFile(fileobj=file) if magic.startswith(b"\x1f\x8b") else file
    return _in_tar(_Metered(inner, meter))


def _in_zip(file: IO[bytes], meter: _Meter) -> Iterator[_Entry]:
    _check_list(file)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise BadInput(f"{info.filename[:100]!r} is encrypted")
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _no_file(info.filename)
            if info.is_dir():
                yield _Entry(info.filename, True, False, None)
                continue
            with archive.open(info) as content:
                yield _Entry(info.filename, False, bool(mode & stat.S_IXUSR), _Metered(content, meter))  # type: ignore[arg-type]


def _check_list(file: IO[bytes]) -> None:
    """Its size stands in the last bytes. With a comment, or in the form for huge archives, it could be another one."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 42))
    tail = file.read()
    last = tail[-22:]
    if not last.startswith(b"PK\5\6") or last[20:] != b"\0\0" or tail.startswith(b"PK\6\7"):
        raise BadInput("this zip ends in a way that packages do not", hint="make it without a comment and below 4 GB")
    if struct.unpack("<L", last[12:16])[0] > _LARGEST_LIST:
        raise TooLarge(f"the list of this zip's entries has more than {_LARGEST_LIST:,} bytes")
    file.seek(0)


class _Header(tarfile.TarInfo):
    """Looked at before the library acts on it."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        if header.type in _HEADERS and header.size > _LARGEST_HEADER:
            raise TooLarge(f"a header of this archive has {header.size:,} bytes")
        if header.type not in (*_PLAIN, *_HEADERS):
            raise _no_file(header.name)
        return header


def _in_tar(source: Any) -> Iterator[_Entry]:
    with tarfile.open(fileobj=source, mode="r|", tarinfo=_Header) as archive:
        for member in archive:
            if member.issparse():
                raise _no_file(member.name)
            folder = member.isdir()
            content = None if folder else archive.extractfile(member)
            yield _Entry(member.name, folder, bool(member.mode & stat.S_IXUSR), content)
    source.finish()


def _no_file(name: str) -> BadInput:
    return BadInput(f"{name[:100]!r} is neither a file nor a folder", hint="packages hold no links and no devices")


# `skep-package.toml`: read, and checked. Pure.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_HINT = "letters, digits and . _ + - inside, at most 100"


def parse(body: bytes) -> Manifest:
    try:
        manifest = msgspec.convert(tomllib.loads(body.decode()), Manifest)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise BadInput(f"{MANIFEST}: {error}") from None
    for what in ("group", "name", "version"):
        if not _NAME.fullmatch(text := getattr(manifest, what)):
            raise BadInput(f"{MANIFEST}: {text[:80]!r} is no {what}", hint=_HINT)
    for name, argv in manifest.commands.items():
        if not _NAME.fullmatch(name) or not argv or not argv[0]:
            raise BadInput(
                f"{MANIFEST}: the command {name[:80]!r} says nothing to run", hint='run = ["python3", "run.py"]'
            )
    return manifest


def split(ref: str) -> tuple[str, str, str]:
    parts = ref.split("/")
    if len(parts) != 3 or not all(_NAME.fullmatch(part) for part in parts):
        raise BadInput(f"{ref[:100]!r} is no package", hint="GROUP/NAME/VERSION")
    return parts[0], parts[1], parts[2]


def context(manifest: Manifest, template: str, properties: dict[str, str]) -> ContextSpec:
    """What a template asks for; of the properties those given here win."""
    if template in manifest.contexts:
        spec = manifest.contexts[template]
    elif template in manifest.tasks:
        spec = ContextSpec(template, (manifest.tasks[template],))
    else:
        known = ", ".join((*manifest.contexts, *manifest.tasks)) or "none"
        raise BadInput(f"{manifest.ref} has no template {template[:80]!r}", hint=f"it has: {known}")
    return msgspec.structs.replace(
        spec,
        tasks=tuple(_own(manifest, task) for task in spec.tasks),
        templates={name: _own(manifest, task) for name, task in (manifest.tasks | spec.templates).items()},
        properties=spec.properties | properties,
    )


def _own(manifest: Manifest, task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(task, package=manifest.ref) if task.command and not task.package else task


# From a folder to a package: the same folder gives the same bytes.


def build(folder: Path, into: Path, bounds: Bounds) -> Manifest:
    """A tar.gz at `into`, looked at as a server would."""
    if not (folder / MANIFEST).is_file():
        raise BadInput(f"there is no {MANIFEST} in {folder}", hint="it names the package and its commands")
    paths = [path for path in sorted(folder.rglob("*")) if path.resolve() != into.resolve()]
    with (
        into.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return parse(unpack(into, bounds))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whose it was, and when it was touched, is nobody's business."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member
