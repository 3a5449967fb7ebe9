"""Archives by hand, good and bad."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

MANIFEST = """
group = "org.example"
name = "bench"
version = "{version}"
description = "measures"

[commands]
run = ["sh", "run.sh"]
own = ["./own.sh", "first"]

[environment]
WHO = "package"

[limits]
seconds = 50.0

[tasks.once]
command = "run"
argv = ["once"]

[contexts.twice]
name = "twice"
[[contexts.twice.tasks]]
name = "a"
template = "once"
[[contexts.twice.tasks]]
name = "b"
command = "own"
needs = [{{ task = "a" }}]
"""
RUN = 'echo "$WHO $SKEP_TASK $@"; echo \'{"metric": "time", "value": 1.5, "unit": "s"}\' > results.jsonl\n'


def files(version: str = "1.0", **more: str) -> dict[str, bytes]:
    plain = {"skep-package.toml": MANIFEST.format(version=version), "run.sh": RUN, "own.sh": "#!/bin/sh\necho own $@\n"}
    return {name: text.encode() for name, text in (plain | more).items()}


def tar(
    content: Mapping[str, bytes], *odd: tarfile.TarInfo, mode: str = "w:gz", form: int = tarfile.PAX_FORMAT
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as archive:  # type: ignore[call-overload]
        for name, body in content.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(body), 0o755
            archive.addfile(info, io.BytesIO(body))
        for info in odd:
            archive.addfile(info, io.BytesIO(b"\0" * info.size))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def zipped(
    content: Mapping[str, bytes], *links: str, compression: int = zipfile.ZIP_DEFLATED, comment: bytes = b""
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.comment = comment
        for name, body in content.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = (stat.S_IFREG | 0o755) << 16, compression
            archive.writestr(info, body)
        for name in links:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def folder(path: Path, version: str = "1.0") -> Path:
    path.mkdir()
    for name, body in files(version).items():
        (path / name).write_bytes(body)
    (path / "own.sh").chmod(0o755)
    return path
