"""Run by a worker once: can a kind of isolation be made on this machine? Prints the answer as JSON."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from skep.runtime import kernel, sandbox
from skep.runtime import sandbox as bubblewrap


def main() -> None:
    backend, user = sys.argv[1], sys.argv[2] == "1"
    options: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            plan = _plan(folder, user)
            if backend == "namespaces":
                _try_namespaces(plan)
            else:
                options = _try_bubblewrap(plan)
        missing = ""
    except OSError as error:
        missing = f"{backend}: {error}"
    landlock, modules = kernel.Landlock.version() > 0, [one for one in sys.path if Path(one).is_absolute()]
    answer = {"missing": missing, "landlock": landlock, "modules": modules, "options": options}
    print(json.dumps(answer))  # noqa: T201


def _plan(folder: str, user: bool) -> sandbox.Plan:
    links = [(one, os.readlink(one)) for one in ("/bin", "/lib", "/lib64") if Path(one).is_symlink()]  # noqa: PTH115
    read = [
        (one, one) for one in ("/usr", "/bin", "/lib", "/lib64") if Path(one).is_dir() and not Path(one).is_symlink()
    ]
    mine = {"root": folder, "links": links, "tmp": folder, "read": read, "hide": [], "more": [], "write": []}
    return {"user": [1, 1, []] if user else None, "network": False, "options": [], **mine}


def _try_namespaces(plan: sandbox.Plan) -> None:
    own = os.getuid(), os.getgid()
    reading, writing = os.pipe()
    pid = kernel.clone(sandbox.flags_of(plan))
    if pid == 0:
        try:
            if not plan["user"]:
                sandbox.map_user(*own)
            sandbox.raise_loopback()
            sandbox.build(plan)
        except BaseException as error:
            os.write(writing, str(error).encode()[:1000])
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    if problem := os.read(reading, 1000).decode():
        raise OSError(problem)


def _try_bubblewrap(plan: sandbox.Plan) -> list[str]:
    """The further options it knows."""
    program = shutil.which("bwrap")
    if program is None:
        raise OSError("it is not installed")
    for options in (["--disable-userns"], []):
        argv = [program, *bubblewrap.arguments({**plan, "options": options}), "--", "/usr/bin/env", "true"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, env={})
        if done.returncode == 0:
            return options
    raise OSError(done.stderr.decode(errors="replace").strip()[:1000])


if __name__ == "__main__":
    main()
