"""From a folder to a package: the same folder gives the same bytes."""

import gzip
import tarfile
from pathlib import Path

from skep.errors import BadInput
from skep.model.package import MANIFEST, Manifest
from skep.packages.archive import Bounds, unpack
from skep.packages.manifest import parse


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
