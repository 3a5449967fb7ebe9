"""What keeps tasks apart from the worker and from each other on this machine, and what a task may see of it."""

import asyncio
import grp
import json
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from skep.base.errors import BadInput, Unavailable
from skep.config.settings import Settings
from skep.tasks.model import Command

Backend = Literal["namespaces", "bubblewrap", "none"]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
#: what programs read to learn how many processors there are
_MACHINE = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_BUBBLEWRAP = "bwrap"
_SHARED = "/dev/shm"  # noqa: S108
_NOTHING: dict[str, Any] = {"landlock": False, "modules": [], "options": []}
_HINT = (
    'allow user namespaces, or install bubblewrap; task_isolation = "none" runs tasks as the worker\'s user, '
    "who reads its tokens"
)


class Isolation(msgspec.Struct, frozen=True):
    """`name` is for people: what is active, such as `landlock+namespaces`."""

    name: str
    backend: Backend
    landlock: bool = False
    #: where this interpreter finds modules when it is started by Skep
    modules: tuple[str, ...] = ()
    #: further words for bubblewrap
    options: tuple[str, ...] = ()
    #: why there is none; empty: there is, or none is wanted
    missing: str = ""

    def check(self) -> None:
        if self.missing:
            raise Unavailable(f"this worker cannot isolate tasks, so it runs none: {self.missing}", hint=_HINT)


async def find(settings: Settings) -> Isolation:
    """Tries what the settings allow, the strongest first."""
    wanted: Sequence[Backend] = ("namespaces", "bubblewrap")
    if settings.task_isolation == "none":
        return Isolation("none", "none")
    if settings.task_isolation != "auto":
        wanted = (settings.task_isolation,)
    user = bool(user_of(settings))
    found: list[Isolation] = []
    reasons: list[str] = []
    for backend in wanted:
        tried = await _tried(backend, user)
        if tried.missing:
            reasons.append(tried.missing)
        else:
            found.append(tried)
            if tried.landlock:
                break
    return next(
        (one for one in found if one.landlock),
        found[-1] if found else Isolation("none", "none", missing="; ".join(reasons)),
    )


async def _tried(backend: Backend, user: bool) -> Isolation:
    argv = [sys.executable, "-I", "-m", "skep.runtime.isolation_probe", backend, str(int(user))]
    child = await asyncio.create_subprocess_exec(
        *argv, env={"PATH": path()}, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {"missing": f"the trial of {backend} ended with {child.returncode}", **_NOTHING}
    parts = [*(["landlock"] if answer["landlock"] else []), backend, *(["user"] if user else [])]
    return Isolation(
        *("+".join(parts), backend, answer["landlock"]),
        *(tuple(answer["modules"]), tuple(answer["options"]), answer["missing"]),
    )


def user_of(settings: Settings) -> tuple[int, int, list[int]] | None:
    """Uid, gid and groups that tasks run with; None: those of the worker."""
    if not settings.task_user:
        return None
    try:
        user = pwd.getpwnam(settings.task_user)
    except KeyError:
        raise BadInput(f"task_user: this machine has no user '{settings.task_user}'") from None
    if user.pw_uid == os.getuid():
        return None
    if os.getuid() != 0:
        raise BadInput(f"task_user: only a worker of root may run tasks as '{settings.task_user}'")
    if user.pw_uid == 0:
        raise BadInput("task_user: tasks must not run as root", hint="name an ordinary user")
    groups = [group.gr_gid for group in grp.getgrall() if user.pw_name in group.gr_mem]
    return user.pw_uid, user.pw_gid, groups


def path() -> str:
    """The worker's PATH. A relative entry would be a folder of the task."""
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(":") if entry.startswith("/")]
    return ":".join(entries) or "/usr/bin:/bin"


class Planner:
    """Plans of runs; what is the same for all of them is found out once."""

    def __init__(self, settings: Settings, folder: Path, isolation: Isolation) -> None:
        """`folder` is the runtime's own, below the data folder."""
        self.isolation = isolation
        self.user = user_of(settings)
        self._writable = [(str(Path(one).resolve()), str(Path(one))) for one in settings.task_writable_paths]
        own = Path(settings.data).absolute()
        self._links, self._read = _shown(_readable(settings, isolation))
        secrets = _secrets(settings, {own, own.resolve(), folder})
        self._hide = [one for one in secrets if any(_is_below(one, at) for _, at in self._read)]

    def plan(self, command: Command, run: Path) -> dict[str, Any]:
        """`run` is its folder, without links in its path."""
        if self.isolation.backend == "none":
            return {"backend": "none"}
        network = [os.path.realpath("/etc/resolv.conf")] if command.network else []
        more = [(os.path.realpath(one), one) for one in (*command.readable, *network) if _is_there(one)]
        names = ("work", "tmp")
        return {
            "backend": self.isolation.backend,
            "landlock": self.isolation.landlock,
            "options": self.isolation.options,
            "program": shutil.which(_BUBBLEWRAP, path=path()) or "",
            "python": sys.executable,
            "user": self.user,
            "network": command.network,
            "root": str(run / "tmp"),
            "links": self._links,
            "tmp": str(run / "tmp"),
            "read": self._read,
            "hide": self._hide,
            "more": more,
            "write": [(str(run / "shm"), _SHARED), *self._writable, *((str(run / one),) * 2 for one in names)],
        }


def _readable(settings: Settings, isolation: Isolation) -> list[str]:
    """Programs, and what this interpreter needs; the latter may be anywhere."""
    # a shim starts what is elsewhere in the folder of its version manager
    programs = [str(Path(one).parent) if Path(one).name == "shims" else one for one in path().split(":")]
    python = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), *isolation.modules]
    return [*_SYSTEM, *_MACHINE, *programs, *python, *settings.task_paths]


def _shown(paths: Iterable[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Links of the root folder as links; of the others the real path and where it is shown, none below another."""
    links: list[tuple[str, str]] = []
    pairs: list[tuple[str, str]] = []
    for one in dict.fromkeys(os.path.normpath(path) for path in paths):
        if one.count("/") == 1 and os.path.islink(one):  # noqa: PTH114
            links.append((one, str(Path(one).readlink())))
        elif _is_there(one):
            pairs += dict.fromkeys([(os.path.realpath(one),) * 2, (os.path.realpath(one), one)])
    kept: list[tuple[str, str]] = []
    for pair in sorted(set(pairs), key=lambda pair: pair[1].count("/")):
        if pair[1] != "/" and not _within(pair[1], kept) and not any(_is_below(pair[1], link) for link, _ in links):
            kept.append(pair)
    return links, kept


def _is_there(one: str) -> bool:
    """For the user of this process; `Path.exists` raises an error for what is below a folder of others."""
    return os.path.exists(one)  # noqa: PTH110


def _within(shown: str, pairs: Sequence[tuple[str, str]]) -> bool:
    return any(_is_below(shown, at) and os.path.realpath(shown) == source + shown[len(at) :] for source, at in pairs)


def _is_below(one: str, other: str) -> bool:
    return one == other or one.startswith(other.rstrip("/") + "/")


def _secrets(settings: Settings, folders: Iterable[Path]) -> list[str]:
    """What is hidden even where it lies below something that is shown."""
    files = [os.environ.get("SKEP_CONFIG", "") or "skep.toml", settings.token_file, settings.tls_key]
    named = [Path(one).absolute() for one in files if one]
    every = {*folders, *named, *(one.resolve() for one in named), Path("/etc/skep")}
    return sorted({*map(str, every), *_not_for_all(Path("/etc"), user_of(settings))})


def _not_for_all(folder: Path, user: tuple[int, int, list[int]] | None) -> list[str]:
    """What not every user of this machine may read, but the user that tasks run as."""
    uid, groups = (user[0], {user[1], *user[2]}) if user else (os.getuid(), {os.getgid(), *os.getgroups()})
    found: list[str] = []
    ahead = [str(folder)]
    while ahead:
        try:
            entries = list(os.scandir(ahead.pop()))
        except OSError:
            continue
        for entry in entries:
            one = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(one.st_mode):
                continue
            if not one.st_mode & stat.S_IROTH:
                found += [entry.path] if one.st_uid == uid or one.st_gid in groups else []
            elif stat.S_ISDIR(one.st_mode):
                ahead.append(entry.path)
    return found
