"""The inside of an isolated run: a root of its own, made from what a task may see, and rights taken away before exec.

Runs in a fork of the supervisor. Standard library only. A plan is a dictionary, as it comes in an order:
`read`, `more` and `write` are pairs of a real path and the path it is shown at; of the paths of `hide` nothing is shown
but what `more` and `write` name.
"""

import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from skep.runtime import kernel
from skep.runtime.kernel import look, mark

# From a fork of the keeper to the command: everything that has to hold before the first line of it runs.


def become(order: dict[str, Any], files: list[int], keeper: int, notes: int, open_files: tuple[int, int]) -> None:
    """Without isolation."""
    os.setsid()
    kernel.become_reaper()
    # a command that turned into another user's could not be ended
    kernel.refuse_new_privileges()
    os.write(notes, f"{mark(os.getpid())}\n".encode())
    be_expendable()
    if os.getppid() == keeper:
        execute(order, files, open_files)


def execute(order: dict[str, Any], files: list[int], open_files: tuple[int, int]) -> None:
    """The last steps; returns only by an error."""
    os.chdir(order["folder"])
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    _limit(order["limits"])
    # when processors are short the worker comes first; and our own steps before this one
    os.nice(5)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execve(order["path"], order["argv"], order["environment"])  # noqa: S606


def be_expendable() -> None:
    """When memory is short the worker comes first."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"500")
    os.close(file)


def broke(order: dict[str, Any], error: BaseException) -> dict[str, Any]:
    number = error.errno if isinstance(error, OSError) else None
    return {"broke": order["start"], "errno": number, "text": str(error)}


def used(usage: resource.struct_rusage) -> dict[str, Any]:
    return {"cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss << 10}


def _limit(limits: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (cpu := limits["cpu"]) is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu) + 1, int(cpu) + 2))
    if (disk := limits["disk"]) is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    if (memory := limits["memory"]) is not None:
        # not RLIMIT_AS: Java, Go and node reserve far more addresses than they use. Twice, so that whoever grows is
        # found by the watch, which can say why; this is the wall for one that grows faster than the watch looks
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory, 2 * memory))


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


# The first process of an isolated run: makes the inside, starts the command, passes signals on and reports its end.
#
# All processes of the run are in its process namespace, and the kernel ends them when this process ends; it ends with
# the
# supervisor. Standard library only.

#: reports to the worker, with descriptors
Tell = Callable[[dict[str, Any], list[int]], None]


def begin(supervisor: int, notes: int) -> None:
    """In a new process, before it leaves the processes of this machine: it is noted, and ends with its supervisor."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    kernel.die_with_parent()
    # not getpid and getppid: this process has another number inside
    own = int(Path("/proc/self").readlink().name)
    found = look(own)
    if found is None or found.parent != supervisor:
        os._exit(127)
    os.write(notes, f"{own} {found.born}\n".encode())
    os.close(notes)
    be_expendable()


def enter(order: dict[str, Any], uid: int, gid: int, tell: Tell) -> None:
    """`uid` and `gid`: those of the supervisor."""
    plan = order["sandbox"]
    if not plan["user"]:
        map_user(uid, gid)
    if not plan["network"]:
        raise_loopback()
        with listening() as listener:
            tell({"listening": order["start"]}, [listener.fileno()])
    build(plan)


def serve(order: dict[str, Any], files: list[int], open_files: tuple[int, int], tell: Tell) -> NoReturn:
    """Starts the command and stays until it has ended."""
    kernel.be_opaque()
    command = os.fork()
    if command == 0:
        try:
            os.setsid()
            give_up_rights(order["sandbox"])
            execute(order, files, open_files)
        except BaseException as error:
            tell(broke(order, error), [])
        finally:
            os._exit(127)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(command))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    while (ended := os.wait4(-1, 0))[0] != command:
        continue
    _, status, usage = ended
    message = {"exited": order["start"], "status": status, **used(usage)}
    tell(message, [])
    os._exit(0)


def _pass_on(command: int) -> None:
    with suppress(ProcessLookupError):
        try:
            os.killpg(command, signal.SIGTERM)
        except ProcessLookupError:  # it has no group of its own until it has got that far
            os.kill(command, signal.SIGTERM)


def teller(line: socket.socket) -> Tell:
    def tell(message: dict[str, Any], files: list[int]) -> None:
        with suppress(OSError):  # the worker has ended: the supervisor notices
            socket.send_fds(line, [json.dumps(message).encode()], files)

    return tell


# Isolation by bubblewrap, where namespaces cannot be made directly: its arguments, and the first process inside.
#
# Standard library only.

_ROOT = str(Path(__file__).parents[2])
_STARTER = f"import sys; sys.path.insert(0, {_ROOT!r}); from skep.runtime.sandbox import main; main()"
#: for the interpreter's own imports; it sees the folder of Skep's code among the read-only ones
_PYTHON = ("-I", "-S", "-c", _STARTER)


def arguments(plan: Plan) -> list[str]:
    """What a task may see, in bubblewrap's words; the order counts."""
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1", "--die-with-parent"]
    words += [] if plan["network"] else ["--unshare-net"]
    # to become another user the first process needs its capabilities; it drops them
    words += ["--cap-add", "ALL"] if plan["user"] else ["--unshare-user", "--cap-drop", "ALL", *plan["options"]]
    for link, target in plan["links"]:
        words += ["--symlink", target, link]
    words += ["--bind", plan["tmp"], "/tmp"]  # noqa: S108
    for folder in _above(plan):
        words += ["--perms", "0755", "--dir", folder]
    for source, target in plan["read"]:
        words += ["--ro-bind", source, target]
    folders = [path for path in plan["hide"] if os.path.isdir(path)]
    for path in plan["hide"]:
        if os.path.exists(path):
            words += ["--tmpfs", path] if path in folders else ["--ro-bind", "/dev/null", path]
    words += ["--dev", "/dev", "--proc", "/proc"]
    for source, target in plan["more"]:
        words += ["--ro-bind", source, target]
    for source, target in plan["write"]:
        words += ["--bind", source, target]
    return [*words, *(word for path in folders for word in ("--remount-ro", path)), "--remount-ro", "/"]


def _above(plan: Plan) -> list[str]:
    """Folders that bubblewrap makes for what is shown below them; only its own user could pass through them."""
    shown = [Path(target) for name in ("read", "more", "write") for _, target in plan[name]]
    given = [Path(target) for _, target in plan["read"]]
    found = {above for path in shown for above in path.parents if not any(map(above.is_relative_to, given))}
    return [str(one) for one in sorted(found) if one.parts[1:2] not in ((), ("dev",), ("proc",))]


def bubblewrap_execute(order: dict[str, Any], line: int, files: list[int], open_files: tuple[int, int]) -> None:
    """Becomes bubblewrap, which starts `main` inside; returns only by an error."""
    plan = order["sandbox"]
    order_file = os.memfd_create("order", 0)
    os.write(order_file, json.dumps([order, open_files]).encode())
    for file in (line, *files):
        os.set_inheritable(file, True)
    numbers = [str(file) for file in (order_file, line, *files)]
    argv = [plan["program"], *arguments(plan), "--", plan["python"], *_PYTHON, *numbers]
    os.execve(plan["program"], argv, {"PATH": os.defpath})  # noqa: S606


def main() -> None:
    order_file, line, *files = map(int, sys.argv[1:])
    os.lseek(order_file, 0, os.SEEK_SET)
    with os.fdopen(order_file, "rb") as file:
        order, open_files = json.load(file)
    for number in (line, *files):
        os.set_inheritable(number, False)
    tell = teller(socket.socket(fileno=line))
    if not order["sandbox"]["network"]:
        with listening() as listener:
            tell({"listening": order["start"]}, [listener.fileno()])
    serve(order, files, open_files, tell)
