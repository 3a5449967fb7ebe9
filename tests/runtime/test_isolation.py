"""Hostile tasks: what they try is refused, with every kind of isolation that this machine has."""

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.isolation import find
from skep.runtime.kernel import look
from skep.runtime.runtime import Runtime
from skep.runtime.task_api import TaskCall
from skep.tasks.model import Command, Limits
from tests.runtime.conftest import DEADLINE, Tag, Told, ended, script, shell, until

SECRET = "secret-of-the-worker"
pytestmark = pytest.mark.servers
KINDS = {
    "namespaces": {},
    "bubblewrap": {},
    "user": {"task_isolation": "namespaces", "task_user": "nobody"},
    "bubblewrap user": {"task_isolation": "bubblewrap", "task_user": "nobody"},
}
MB = 1_000_000


class House(NamedTuple):
    runtime: Runtime
    #: of the worker; holds admin.token
    data: Path


async def called(call: TaskCall) -> Any:
    return {"task": call.task}


@pytest.fixture(params=KINDS)
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """Not below /tmp, of which each task has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        async for one in _house(request, Path(folder, "data")):
            yield one


async def _house(request: pytest.FixtureRequest, data: Path) -> AsyncIterator[House]:
    data.mkdir(0o755)
    (data / "admin.token").write_text(SECRET)
    given: dict[str, Any] = {"task_isolation": request.param} | KINDS[request.param]
    if "user" in request.param and os.getuid() != 0:
        pytest.skip("only root runs tasks as another user")
    settings = Settings(data=str(data), task_network=True, **given)
    if missing := (await find(settings)).missing:
        pytest.skip(f"this machine has no {request.param}: {missing}")
    async with Runtime(data / "worker" / "tasks", settings, SystemClock(), called) as runtime:
        yield House(runtime, data)


async def said(house: House, code: str, *args: str, network: bool = False) -> Any:
    """What a script printed as JSON, once it has ended well."""
    told = Told()
    one = script(code, *args)
    command = Command(one.task, 1, one.context, one.argv, network=network)
    async with asyncio.timeout(DEADLINE):
        end = await house.runtime.run(command, told)
    assert end.ok, (end, told.stderr.decode())
    return json.loads(told.stdout)


#: tries each of its arguments, and prints which of them worked
TRIES = """
import json, os, sys
def reads(path):
    try:
        with open(path, "rb") as file: return file.read(100).decode("latin-1")
    except OSError: return None
def writes(path):
    try:
        with open(path, "ab") as file: file.write(b"x")
        return path
    except OSError: return None
"""


async def test_isolation_of_a_path_to_the_token_reads_nothing(house: House) -> None:
    token = house.data / "admin.token"
    code = TRIES + (
        "os.symlink(sys.argv[1], 'link')\n"
        "roots = ['', '/proc/1/root', '/proc/self/root', '/proc/1/cwd/../../../..', '/.old', '/proc/self/cwd/..']\n"
        "paths = [root + sys.argv[1] for root in roots] + ['link', '../../../../../admin.token']\n"
        "print(json.dumps([reads(path) for path in paths]))"
    )
    found = await said(house, code, str(token))
    assert found == [None] * 8


async def test_isolation_of_other_processes_shows_none_of_them(house: House, tag: Tag) -> None:
    other = asyncio.create_task(ended(house.runtime, shell("sleep 1000", tag.word, task="other")))
    await until(tag.pids)
    code = TRIES + (
        "pids = [name for name in os.listdir('/proc') if name.isdigit()]\n"
        "words = [reads(f'/proc/{pid}/cmdline') or '' for pid in pids]\n"
        "environs = [reads(f'/proc/{pid}/environ') for pid in pids if pid != str(os.getpid())]\n"
        "files = [f'/proc/{pid}/fd/{n}' for pid in pids if pid != str(os.getpid()) for n in range(64)]\n"
        "secrets = [f'/proc/{os.getppid()}/{name}' for name in ('mem', 'maps', 'root/etc/passwd', 'cwd/etc/passwd')]\n"
        "opened = [path for path in files + secrets if reads(path) is not None]\n"
        "print(json.dumps([len(pids), os.getppid(), sys.argv[1] in ''.join(words[:-1]), environs, opened]))"
    )
    count, parent, seen, environs, opened = await said(house, code, tag.word)
    # itself, and the first process of its run, of which nothing can be read
    assert (count, parent, seen, environs, opened) == (2, 1, False, [None], [])
    await house.runtime.cancel("other", 1)
    await other


async def test_isolation_of_other_runs_shows_no_folder_of_theirs(house: House, tag: Tag) -> None:
    other = asyncio.create_task(ended(house.runtime, shell("echo mine > file; sleep 1000", tag.word, task="other")))
    await until(lambda: list(house.data.glob("worker/tasks/runs/*-other-1/work/file")))
    [file] = house.data.glob("worker/tasks/runs/*-other-1/work/file")
    runs = file.parents[2]
    code = TRIES + "print(json.dumps([reads(sys.argv[1]), os.listdir(sys.argv[2])]))"
    text, names = await said(house, code, str(file), str(runs))
    assert text is None and len(names) == 1 and "other" not in names[0]
    await house.runtime.cancel("other", 1)
    await other


async def test_isolation_of_files_lets_a_task_write_only_its_own_folders(house: House, tmp_path: Path) -> None:
    places = ["/file", "/usr/file", "/etc/file", "/dev/file", "/root/file", "/home/file", "/var/tmp/file", "/proc/file"]
    places += [
        str(house.data / "file"),
        str(tmp_path / "file"),
        "/proc/sys/kernel/core_pattern",
        "../file",
        "../stdout",
    ]
    code = TRIES + "print(json.dumps([writes(path) for path in sys.argv[1:] if writes(path)]))"
    own = ["file", "/tmp/file", "/dev/shm/file", "/dev/null"]
    found = await said(house, code, *places, *own)
    assert found == own
    assert not any(Path(path).exists() for path in (*places[:7], *places[8:10], *own[1:3]))


async def test_isolation_of_the_home_shows_no_secret_of_the_user(house: House) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    code = TRIES + (
        "names = ['.ssh', '.netrc', '.bashrc', '.profile', '.gitconfig', '.config', '.cache']\n"
        "shown = [name for name in names if os.path.exists(os.path.join(sys.argv[1], name))]\n"
        "places = ['/run', '/var/lib', '/var/log', '/srv', '/mnt', '/media', '/boot', '/home']\n"
        "others = [path for path in places if os.path.exists(path)]\n"
        "print(json.dumps([shown, others, [reads(f'/etc/{name}') for name in ('shadow', 'gshadow')]]))"
    )
    shown, others, shadows = await said(house, code, str(home))
    assert (shown, others) == ([], []) and not any(shadows)


async def test_isolation_of_signals_reaches_nobody_outside(house: House) -> None:
    await ended(house.runtime, shell("true"))
    supervisor = int((house.runtime.folder / "keeper").read_text().splitlines()[1].split()[0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        code = (
            "import ctypes, json, os, signal, sys\n"
            "refused = []\n"
            "for pid in map(int, sys.argv[1:]):\n"
            "    try: os.kill(pid, signal.SIGKILL)\n"
            "    except OSError: refused.append(pid)\n"
            "libc = ctypes.CDLL(None)\n"
            "traced = [libc.ptrace(16, pid, 0, 0) for pid in [*map(int, sys.argv[1:]), 1]]\n"
            "try: os.kill(1, signal.SIGKILL)\n"
            "except OSError: pass\n"
            "print(json.dumps([len(refused), traced]))"
        )
        pids = [str(pid) for pid in (victim.pid, os.getpid(), supervisor)]
        assert await said(house, code, *pids) == [3, [-1] * 4]
        assert victim.poll() is None
        victim.kill()


async def test_isolation_of_the_network_leaves_only_the_api(house: House) -> None:
    listener, datagrams = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)
    abstract, named = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    name = f"skep-{os.getpid()}-{id(house)}"
    abstract.bind("\0" + name)
    named.bind(str(house.data / "socket"))
    with listener, datagrams, abstract, named:
        abstract.listen()
        named.listen()
        code = (
            "import json, os, socket, sys, urllib.request\n"
            "port, udp, name, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]\n"
            "def works(kind, type, address):\n"
            "    try:\n"
            "        with socket.socket(kind, type) as one:\n"
            "            one.settimeout(60); one.connect(address); one.send(b'x')\n"
            "        return True\n"
            "    except OSError: return False\n"
            "inet, unix = socket.AF_INET, socket.AF_UNIX\n"
            "found = [works(inet, socket.SOCK_STREAM, ('127.0.0.1', port)),\n"
            "    works(inet, socket.SOCK_STREAM, ('192.0.2.1', 80)),\n"
            "    works(inet, socket.SOCK_DGRAM, ('192.0.2.1', 53)),\n"
            "    works(unix, socket.SOCK_STREAM, '\\0' + name), works(unix, socket.SOCK_STREAM, path)]\n"
            "works(inet, socket.SOCK_DGRAM, ('127.0.0.1', udp))\n"
            "for kind in (inet, socket.AF_PACKET):\n"
            "    try: socket.socket(kind, socket.SOCK_RAW, 1).close(); found.append(True)\n"
            "    except OSError: found.append(False)\n"
            "ask = urllib.request.Request(os.environ['SKEP_API'] + '/state/key',\n"
            "    headers={'Authorization': 'Bearer ' + os.environ['SKEP_TOKEN']})\n"
            "found.append(json.load(urllib.request.urlopen(ask))['task'])\n"
            "print(json.dumps(found))"
        )
        ports = str(listener.getsockname()[1]), str(datagrams.getsockname()[1])
        found = await said(house, code, *ports, name, str(house.data / "socket"))
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
    assert found == [False] * 7 + ["tsk_1"]


async def test_network_asked_for_and_allowed_reaches_the_machine_and_the_api(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = (
            "import json, os, socket, sys, urllib.request\n"
            "socket.create_connection(('127.0.0.1', int(sys.argv[1]))).close()\n"
            "ask = urllib.request.Request(os.environ['SKEP_API'] + '/state/key',\n"
            "    headers={'Authorization': 'Bearer ' + os.environ['SKEP_TOKEN']})\n"
            "print(json.dumps(json.load(urllib.request.urlopen(ask))['task']))"
        )
        assert await said(house, code, str(listener.getsockname()[1]), network=True) == "tsk_1"


async def test_capabilities_of_a_task_are_none_and_cannot_be_regained(house: House) -> None:
    code = (
        "import ctypes, json\n"
        "libc = ctypes.CDLL(None)\n"
        "caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]\n"
        "mounts = [libc.mount(b'none', b'/tmp', b'tmpfs', 0, None),\n"
        "    libc.umount2(b'/etc', 2), libc.umount2(b'/proc', 2),\n"
        "    libc.mount(None, b'/usr', None, 32 | 4096, None)]\n"
        "libc.unshare(0x10000000)\n"
        "libc.unshare(0x00020000)\n"
        "mounts += [libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), libc.umount2(b'/etc', 2)]\n"
        "print(json.dumps([caps, mounts]))"
    )
    caps, mounts = await said(house, code)
    assert set(caps) == {"0" * 16} and set(mounts) == {-1}


async def test_descriptors_of_a_task_are_the_three_standard_ones(house: House) -> None:
    assert await said(house, "import json, os; print(json.dumps(len(os.listdir('/proc/self/fd'))))") == 4


async def test_environment_of_a_task_is_only_what_was_given(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", SECRET)
    names = await said(house, "import json, os; print(json.dumps([*os.environ]))")
    given = {"PATH", "LANG", "HOME", "TMPDIR", "LC_CTYPE", "PWD", *(f"SKEP_{name}" for name in ("TASK", "ATTEMPT"))}
    given |= {f"SKEP_{name}" for name in ("CONTEXT", "PROPERTIES", "API", "TOKEN", "RUNTIME")}
    assert set(names) <= given


async def test_supervisor_starts_from_an_empty_environment(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", SECRET)
    running = asyncio.create_task(ended(house.runtime, shell("sleep 1000")))
    await until((house.runtime.folder / "keeper").read_text)
    supervisor = int((house.runtime.folder / "keeper").read_text().splitlines()[1].split()[0])
    variables = Path(f"/proc/{supervisor}/environ").read_text().strip("\0").split("\0")
    assert variables == [f"SKEP_RUNTIME={house.runtime.folder}"]
    await house.runtime.cancel("tsk_1", 1)
    await running


async def test_daemons_of_a_task_end_with_it(house: House, tag: Tag) -> None:
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        code = 'import time; time.sleep(1000)'\n"
        "        os.execve(sys.executable, [sys.executable, '-I', '-c', code, sys.argv[1]], {})\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.2)"
    )
    assert (await ended(house.runtime, script(code, tag.word))).ok
    assert tag.pids() == []


@pytest.mark.parametrize(
    ("reason", "code", "limits"),
    [
        ("processes", "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(1000)", Limits(processes=40)),
        ("cpu", "while True: pass", Limits(cpu=0.3)),
        ("memory", "import time\nkept = bytearray(150_000_000)\ntime.sleep(1000)", Limits(memory=100 * MB)),
        ("disk", "import time\nfor n in range(9): open(f'/dev/shm/{n}', 'wb').write(bytes(900_000))\ntime.sleep(1000)",
         Limits(disk=MB)),
        ("time", "import time; time.sleep(1000)", Limits(seconds=0.3)),
    ],
)  # fmt: skip
async def test_limits_of_an_isolated_task_hold_and_are_named(
    house: House, tag: Tag, reason: str, code: str, limits: Limits
) -> None:
    assert (await ended(house.runtime, script(code, tag.word, limits=limits))).reason == reason
    assert tag.pids() == []


async def test_codes_and_signals_of_an_isolated_task_are_its_own(house: House) -> None:
    assert (await ended(house.runtime, shell("exit 137"))).code == 137
    assert (await ended(house.runtime, shell("kill -SEGV $$"))).signal == signal.SIGSEGV


async def test_a_task_cancelled_may_use_its_grace(house: House) -> None:
    told = Told()
    command = shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done", grace=60)
    running = asyncio.create_task(house.runtime.run(command, told))
    await until(lambda: b"ready" in told.stdout)
    await house.runtime.cancel("tsk_1", 1)
    end = await running
    assert (end.code, end.reason, told.stdout) == (7, "cancelled", b"ready\nbye\n")


async def test_a_supervisor_killed_takes_its_isolated_tasks_with_it(house: House, tag: Tag) -> None:
    running = asyncio.create_task(ended(house.runtime, shell("sleep 1000; true", tag.word)))
    await until(tag.pids)
    supervisor = int((house.runtime.folder / "keeper").read_text().splitlines()[1].split()[0])
    os.kill(supervisor, signal.SIGKILL)
    assert (await running).reason == "lost" and tag.pids() == []
    assert look(supervisor) is None or look(supervisor).zombie  # type: ignore[union-attr]
