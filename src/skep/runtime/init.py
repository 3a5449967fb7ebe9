"""The first process of an isolated run: makes the inside, starts the command, passes signals on and reports its end.

All processes of the run are in its process namespace, and the kernel ends them when this process ends; it ends with the
supervisor. Standard library only.
"""

import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from skep.runtime import child, kernel, sandbox
from skep.runtime.processes import look

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
    child.be_expendable()


def enter(order: dict[str, Any], uid: int, gid: int, tell: Tell) -> None:
    """`uid` and `gid`: those of the supervisor."""
    plan = order["sandbox"]
    if not plan["user"]:
        sandbox.map_user(uid, gid)
    if not plan["network"]:
        sandbox.raise_loopback()
        with sandbox.listening() as listener:
            tell({"listening": order["start"]}, [listener.fileno()])
    sandbox.build(plan)


def serve(order: dict[str, Any], files: list[int], open_files: tuple[int, int], tell: Tell) -> NoReturn:
    """Starts the command and stays until it has ended."""
    kernel.be_opaque()
    command = os.fork()
    if command == 0:
        try:
            os.setsid()
            sandbox.give_up_rights(order["sandbox"])
            child.execute(order, files, open_files)
        except BaseException as error:
            tell(child.broke(order, error), [])
        finally:
            os._exit(127)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(command))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    while (ended := os.wait4(-1, 0))[0] != command:
        continue
    _, status, usage = ended
    message = {"exited": order["start"], "status": status, **child.used(usage)}
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
