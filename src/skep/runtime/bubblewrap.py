"""Isolation by bubblewrap, where namespaces cannot be made directly: its arguments, and the first process inside.

Standard library only.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from skep.runtime import init, sandbox

_ROOT = str(Path(__file__).parents[2])
_STARTER = f"import sys; sys.path.insert(0, {_ROOT!r}); from skep.runtime.bubblewrap import main; main()"
#: for the interpreter's own imports; it sees the folder of Skep's code among the read-only ones
_PYTHON = ("-I", "-S", "-c", _STARTER)


def arguments(plan: sandbox.Plan) -> list[str]:
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
    folders = [path for path in plan["hide"] if os.path.isdir(path)]  # noqa: PTH112
    for path in plan["hide"]:
        if os.path.exists(path):  # noqa: PTH110
            words += ["--tmpfs", path] if path in folders else ["--ro-bind", "/dev/null", path]
    words += ["--dev", "/dev", "--proc", "/proc"]
    for source, target in plan["more"]:
        words += ["--ro-bind", source, target]
    for source, target in plan["write"]:
        words += ["--bind", source, target]
    return [*words, *(word for path in folders for word in ("--remount-ro", path)), "--remount-ro", "/"]


def _above(plan: sandbox.Plan) -> list[str]:
    """Folders that bubblewrap makes for what is shown below them; only its own user could pass through them."""
    shown = [Path(target) for name in ("read", "more", "write") for _, target in plan[name]]
    given = [Path(target) for _, target in plan["read"]]
    found = {above for path in shown for above in path.parents if not any(map(above.is_relative_to, given))}
    return [str(one) for one in sorted(found) if one.parts[1:2] not in ((), ("dev",), ("proc",))]


def execute(order: dict[str, Any], line: int, files: list[int], open_files: tuple[int, int]) -> None:
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
    tell = init.teller(socket.socket(fileno=line))
    if not order["sandbox"]["network"]:
        with sandbox.listening() as listener:
            tell({"listening": order["start"]}, [listener.fileno()])
    init.serve(order, files, open_files, tell)
