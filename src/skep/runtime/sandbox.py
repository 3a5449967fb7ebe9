"""The inside of an isolated run: a root of its own, made from what a task may see, and rights taken away before exec.

Runs in a fork of the supervisor. Standard library only. A plan is a dictionary, as it comes in an order:
`read`, `more` and `write` are pairs of a real path and the path it is shown at; of the paths of `hide` nothing is shown
but what `more` and `write` name.
"""

import fcntl
import os
import socket
import struct
from typing import Any

from skep.runtime import kernel

Plan = dict[str, Any]

#: where the API of tasks listens inside a network namespace
PORT = 7300
NAMESPACES = kernel.NEW_MOUNTS | kernel.NEW_NAMES | kernel.NEW_IPC | kernel.NEW_PIDS
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_TMP = "/tmp"  # noqa: S108
_OLD, _EMPTY = "/.old", "/.empty"
_GUARDED = kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES
_SET_FLAGS, _UP = 0x8914, 1


def flags_of(plan: Plan) -> int:
    """The namespaces of a run. A worker that is root and has another user for tasks needs no user namespace."""
    own_user = 0 if plan["user"] else kernel.NEW_USER
    return NAMESPACES | own_user | (0 if plan["network"] else kernel.NEW_NETWORK)


def map_user(uid: int, gid: int) -> None:
    """Keep the ids of the worker's user in a new user namespace: without a map every file has an unknown owner."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)
    kernel.limit_namespaces()


def raise_loopback() -> None:
    """In a new network namespace it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def listening() -> socket.socket:
    """In a new network namespace: through this socket its processes reach the worker."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(128)
    return listener


def build(plan: Plan) -> None:
    """When this returns, the root holds what the plan names and nothing else."""
    # what is unmounted outside is unmounted here too, and nothing that is mounted here appears outside
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.FOLLOWING)
    kernel.mount("tmpfs", plan["root"], "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, "mode=0755,size=8m")
    os.mkdir(plan["root"] + _OLD, 0o700)
    kernel.pivot_root(plan["root"], plan["root"] + _OLD)
    os.chdir("/")
    os.close(os.open(_EMPTY, os.O_CREAT | os.O_WRONLY, 0o400))
    for link, target in plan["links"]:
        os.symlink(target, link)
    # first, as what is shown may be below it
    _show_for_writing(plan["tmp"], _TMP)
    for source, target in plan["read"]:
        _show_for_reading(source, target)
    covers = [path for path in plan["hide"] if _hide(path)]
    _make_devices()
    _place("/proc", folder=True)
    kernel.mount("proc", "/proc", "proc", kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXECUTION)
    for source, target in plan["more"]:
        _show_for_reading(source, target)
    for source, target in plan["write"]:
        _show_for_writing(source, target)
    # covered and not unmounted, for which the kernel may wait for milliseconds: a task cannot unmount anything
    for path in (*covers, _OLD, "/"):
        if path == _OLD:
            _hide(path)
        kernel.restrict(path, _GUARDED, recursive=False)


def _show_for_reading(source: str, target: str) -> None:
    _show(source, target)
    kernel.restrict(target, _GUARDED, recursive=True)


def _show_for_writing(source: str, target: str) -> None:
    _show(source, target)
    kernel.restrict(target, kernel.NO_SETUID | kernel.NO_DEVICES, recursive=True)


def _show(source: str, target: str) -> None:
    _place(target, folder=os.path.isdir(_OLD + source))
    kernel.bind(_OLD + source, target)


def _place(path: str, *, folder: bool) -> None:
    """A place to mount at, if there is none yet."""
    if os.path.exists(path):
        return
    os.makedirs(path if folder else os.path.dirname(path), 0o755, exist_ok=True)
    if not folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def _hide(path: str) -> bool:
    """Whether it is a folder, and a place for what is shown below it."""
    if os.path.isdir(path):
        kernel.mount("tmpfs", path, "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, "mode=0755,size=1m")
        return True
    if os.path.exists(path):
        kernel.bind(_EMPTY, path)
    return False


def _make_devices() -> None:
    os.mkdir("/dev", 0o755)
    for name in _DEVICES:
        if os.path.exists(f"{_OLD}/dev/{name}"):
            _show(f"/dev/{name}", f"/dev/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/pts", 0o755)
    options = "newinstance,ptmxmode=0666,mode=0620"
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.NO_SETUID | kernel.NO_EXECUTION, options)
    os.symlink("pts/ptmx", "/dev/ptmx")


def give_up_rights(plan: Plan) -> None:
    """In the process that becomes the command. Nothing after this needs a privilege."""
    kernel.drop_bounds()
    if plan["user"]:
        uid, gid, groups = plan["user"]
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.refuse_new_privileges()
    if plan["landlock"]:
        _lock_files(plan)


def _lock_files(plan: Plan) -> None:
    rules = kernel.Landlock()
    rules.allow("/", writing=False)
    devices = [f"/dev/{name}" for name in (*_DEVICES, "pts") if os.path.exists(f"/dev/{name}")]
    for path in [_TMP, *(target for _, target in plan["write"]), *devices]:
        rules.allow(path, writing=True)
    rules.restrict()
