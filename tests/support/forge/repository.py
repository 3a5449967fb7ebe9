"""A bare repository that a test writes into. Commits are made by fast-import: one process each, any bytes as names."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: content of a file; a str is the target of a symbolic link; None deletes
Files = Mapping[str | bytes, bytes | str | None]

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "none",
    "GIT_AUTHOR_NAME": "Forge",
    "GIT_AUTHOR_EMAIL": "forge@example.org",
    "GIT_COMMITTER_NAME": "Forge",
    "GIT_COMMITTER_EMAIL": "forge@example.org",
}


class Repo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commits = 0

    @classmethod
    def init(cls, folder: Path, branch: str = "main") -> "Repo":
        folder.mkdir(parents=True)
        repo = cls(folder)
        repo.git("init", "--quiet", "--bare", "--template=", f"--initial-branch={branch}")
        repo.git("config", "http.receivepack", "false")
        return repo

    def git(self, *args: str | bytes, input: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", "-C", str(self.folder), *args], input=input, capture_output=True, env=_ENVIRONMENT, check=False
        )
        if done.returncode:
            raise RuntimeError(f"git {args[0]!r}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def commit(self, files: Files, *, branch: str = "main", message: str = "", parent: str | None = None) -> str:
        """Add a commit to `branch` and return its id. `parent=""` starts anew, which is a force-push."""
        self._commits += 1
        ref = f"refs/heads/{branch}"
        start = self.refs().get(ref, "") if parent is None else parent
        text = (message or f"commit {self._commits}").encode()
        lines = [b"reset %s" % ref.encode()] if parent is not None else []
        lines += [
            b"commit %s" % ref.encode(),
            b"committer Forge <forge@example.org> %d +0000" % (10**9 + self._commits),
        ]
        lines += [b"data %d" % len(text), text]
        if start:
            lines.append(b"from %s" % start.encode())
        for path, content in files.items():
            lines.append(_change(path if isinstance(path, bytes) else path.encode(), content))
        self.git("fast-import", "--quiet", "--force", input=b"\n".join(lines) + b"\n")
        return self.refs()[ref]

    def force_push(self, files: Files, *, branch: str = "main") -> str:
        """Replace the history of `branch`."""
        return self.commit(files, branch=branch, parent="")

    def branch(self, name: str, at: str = "refs/heads/main") -> None:
        self.git("update-ref", f"refs/heads/{name}", at)

    def delete_branch(self, name: str) -> None:
        self.git("update-ref", "-d", f"refs/heads/{name}")

    def tag(self, name: str, at: str = "refs/heads/main", *, annotated: bool = False) -> None:
        self.git(*(("tag", "-a", "-m", name) if annotated else ("tag",)), "--", name, at)

    def set_head(self, branch: str) -> None:
        self.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")

    def refs(self) -> dict[str, str]:
        out = self.git("for-each-ref", "--format=%(objectname) %(refname)")
        pairs = (line.split(b" ", 1) for line in out.splitlines())
        return {name.decode("utf-8", "backslashreplace"): oid.decode() for oid, name in pairs}


def _change(path: bytes, content: bytes | str | None) -> bytes:
    quoted = b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    if content is None:
        return b"D " + quoted
    mode, data = (b"120000", content.encode()) if isinstance(content, str) else (b"100644", content)
    return b"M %s inline %s\ndata %d\n%s" % (mode, quoted, len(data), data)
