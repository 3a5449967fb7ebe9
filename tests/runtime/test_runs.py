"""A run from beginning to end: its environment, output, folder, and the ways in which it cannot begin."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Conflict, TooLarge, Unavailable
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Limits
from tests.runtime.conftest import DEADLINE, Tag, Told, ended, script, shell, until


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "runtime" / "runs").iterdir())


async def test_output_code_and_sizes(runtime: Runtime) -> None:
    told = Told()
    end = await runtime.run(shell("echo out; echo err >&2; exit 3"), told)
    assert (end.code, end.signal, end.reason, end.ok) == (3, None, "", False)
    assert end.message == "ended with exit code 3"
    assert (told.stdout, told.stderr, end.stdout, end.stderr) == (b"out\n", b"err\n", 4, 4)
    assert end.seconds > 0 and end.max_rss > 0


async def test_a_signal_is_named(runtime: Runtime) -> None:
    end = await ended(runtime, shell("kill -SEGV $$"))
    assert (end.code, end.signal, end.message) == (None, 11, "was ended by SIGSEGV")


async def test_the_environment_is_made_from_nothing(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    told = Told()
    code = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.read(0, 1).decode(), os.getsid(0)]))"
    command = script(code)
    command = Command(
        "tsk_1", 2, "ctx_9", command.argv, environment={"MINE": "é", "SKEP_TASK": "no"}, properties={"size": "3"}
    )
    assert (await runtime.run(command, told)).ok
    variables, folder, stdin, session = json.loads(told.stdout)
    variables.pop("LC_CTYPE", None)  # Python's own doing
    assert variables.keys() == {
        *("PATH", "LANG", "HOME", "TMPDIR", "MINE", "SKEP_TASK", "SKEP_ATTEMPT", "SKEP_CONTEXT"),
        *("SKEP_PROPERTIES", "SKEP_RUNTIME"),
    }
    assert [variables[name] for name in ("MINE", "SKEP_TASK", "SKEP_ATTEMPT", "SKEP_CONTEXT")] == [
        *("é", "tsk_1", "2", "ctx_9")
    ]
    assert json.loads(variables["SKEP_PROPERTIES"]) == {"size": "3"}
    assert variables["HOME"] == folder and Path(folder).parents[1] == tmp_path / "runtime" / "runs"
    assert Path(variables["TMPDIR"]).parent == Path(folder).parent
    assert stdin == "" and session != os.getsid(0)


async def test_no_descriptors_are_inherited(runtime: Runtime, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        told = Told()
        assert (await runtime.run(script("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"), told)).ok
        # the fourth is that of the listing
        assert told.stdout == b"[0, 1, 2, 3]\n"


async def test_a_folder_goes_after_success_and_stays_after_failure(runtime: Runtime, tmp_path: Path) -> None:
    await ended(runtime, shell("echo text > made; mkdir -p a/b; chmod 0 a", task="good"))
    await ended(runtime, shell("echo said; echo text > made; exit 1", task="bad"))
    [name] = folders(tmp_path)
    assert name.endswith("-bad-1")
    kept = tmp_path / "runtime" / "runs" / name
    assert (kept / "work" / "made").read_text() == "text\n"
    assert (kept / "stdout").read_text() == "said\n"


async def test_the_history_is_bounded(tmp_path: Path) -> None:
    settings = Settings(task_history=2)
    async with Runtime(tmp_path / "runtime", settings, SystemClock()) as runtime:
        for n in range(4):
            await ended(runtime, shell("exit 1", task=f"t{n}"))
        assert [name.split("-")[1] for name in folders(tmp_path)] == ["t2", "t3"]
    async with Runtime(tmp_path / "runtime", Settings(task_history=1), SystemClock()):
        assert [name.split("-")[1] for name in folders(tmp_path)] == ["t3"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-such-command", "not_found"),
        ("./no-such-command", "not_found"),
        ("/etc/passwd", "not_executable"),
        ("/etc", "not_executable"),
    ],
)
async def test_commands_that_cannot_begin(runtime: Runtime, name: str, reason: str) -> None:
    end = await ended(runtime, Command("tsk_1", 1, "ctx_1", (name,)))
    assert (end.reason, end.code, end.ok) == (reason, None, False)
    assert f"'{name}'" in end.message


async def test_a_missing_interpreter_and_a_script_without_one(runtime: Runtime) -> None:
    for text, reason in (("#!/no/such/interpreter\n", "not_found"), ("echo hello\n", "not_executable")):

        async def before(work: Path, text: str = text) -> None:
            (work / "script").write_text(text)
            (work / "script").chmod(0o755)

        command = Command("tsk_1", 1, "ctx_1", ("./script",))
        assert (await runtime.run(command, lambda *_: None, before=before)).reason == reason


async def test_a_path_of_the_task_does_not_choose_the_command(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "true").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "true").chmod(0o755)
    end = await ended(runtime, Command("tsk_1", 1, "ctx_1", ("true",), environment={"PATH": str(tmp_path)}))
    assert end.ok


@pytest.mark.parametrize(
    "command",
    [
        Command("tsk_1", 1, "ctx_1", ()),
        Command("tsk_1", 1, "ctx_1", ("",)),
        Command("tsk_1", 1, "ctx_1", ("echo", "a\0b")),
        Command("tsk_1", 1, "ctx_1", ("echo", "\udc80")),
        Command("tsk_1", 1, "ctx_1", ("true",), environment={"A=B": "c"}),
        Command("tsk_1", 1, "ctx_1", ("true",), environment={"": "c"}),
        Command("../escape", 1, "ctx_1", ("true",)),
        Command("tsk_1", 1, "ctx_1", ("true",), limits=Limits(seconds=0)),
        Command("tsk_1", 1, "ctx_1", ("true",), limits=Limits(memory=-1)),
    ],
)
async def test_bad_commands_are_refused(runtime: Runtime, command: Command) -> None:
    with pytest.raises(BadInput):
        await ended(runtime, command)
    assert runtime.running == []


async def test_a_command_too_long_to_hand_over_is_refused(runtime: Runtime) -> None:
    with pytest.raises(TooLarge, match="arguments"):
        await ended(runtime, Command("tsk_1", 1, "ctx_1", ("echo", "x" * 200_000)))
    assert (await ended(runtime, Command("tsk_1", 1, "ctx_1", ("echo", "x" * 100_000)))).ok


async def test_an_attempt_runs_once_at_a_time(runtime: Runtime, tag: Tag) -> None:
    running = asyncio.create_task(ended(runtime, shell("sleep 1000", tag.word)))
    await until(tag.pids)
    assert runtime.running == [("tsk_1", 1)]
    with pytest.raises(Conflict):
        await ended(runtime, shell("true"))
    await runtime.cancel("tsk_1", 1)
    end = await running
    assert (end.reason, end.message, runtime.running) == ("cancelled", "was cancelled", [])
    await runtime.cancel("tsk_1", 1)


async def test_a_cancel_before_it_has_begun(runtime: Runtime) -> None:
    running = asyncio.create_task(ended(runtime, shell("sleep 1000")))
    await until(lambda: runtime.running)
    await runtime.cancel("tsk_1", 1)
    assert (await running).reason == "cancelled"


async def test_whoever_waits_may_be_cancelled(runtime: Runtime, tag: Tag) -> None:
    running = asyncio.create_task(ended(runtime, shell("trap '' TERM; while :; do sleep 1; done", tag.word)))
    await until(tag.pids)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tag.pids() == [] and runtime.running == []


async def test_close_ends_every_run(tmp_path: Path, tag: Tag) -> None:
    runtime = Runtime(tmp_path / "runtime", Settings(), SystemClock())
    await runtime.start()
    runs = [asyncio.create_task(ended(runtime, shell("sleep 1000", tag.word, task=f"t{n}"))) for n in range(5)]
    await until(lambda: len(tag.pids()) == 5)
    await runtime.close()
    assert tag.pids() == []
    assert {end.reason for end in await asyncio.gather(*runs)} == {"cancelled"}
    with pytest.raises(Unavailable):
        await ended(runtime, shell("true"))


async def test_output_is_told_while_it_runs(runtime: Runtime) -> None:
    told = Told()
    running = asyncio.create_task(runtime.run(shell("echo first; sleep 1000"), told))
    await until(lambda: told.stdout == b"first\n")
    await runtime.cancel("tsk_1", 1)
    await running


async def test_slow_listeners_hold_the_writer_back(runtime: Runtime) -> None:
    go, chunks = asyncio.Event(), list[bytes]()

    async def listen(_: str, data: bytes) -> None:
        await go.wait()
        chunks.append(data)

    size = 5_000_000
    running = asyncio.create_task(
        runtime.run(script(f"import sys; sys.stdout.buffer.write(b'x' * {size}); open('done', 'w')"), listen)
    )
    await until(lambda: runtime.running)
    [folder] = await _when_there(runtime)
    # what is written beyond pipe and buffers has to wait, so it cannot have come to its end
    assert not (folder / "work" / "done").exists()
    go.set()
    async with asyncio.timeout(DEADLINE):
        end = await running
    assert end.ok and end.stdout == size and b"".join(chunks) == b"x" * size
    assert max(map(len, chunks)) <= 1 << 16


async def _when_there(runtime: Runtime) -> list[Path]:
    """The folders of runs whose output has begun to come."""
    await until(lambda: list((runtime.folder / "runs").glob("*/stdout")))
    return [path.parent for path in (runtime.folder / "runs").glob("*/stdout")]


async def test_an_error_of_the_listener_ends_the_run(runtime: Runtime, tag: Tag) -> None:
    def listen(_: str, __: bytes) -> None:
        raise RuntimeError("cannot take it")

    with pytest.raises(RuntimeError, match="cannot take it"):
        async with asyncio.timeout(DEADLINE):
            await runtime.run(shell("echo hello; sleep 1000", tag.word), listen)
    assert tag.pids() == [] and runtime.running == []


async def test_who_is_cancelled_does_not_wait_for_its_listener(runtime: Runtime, tag: Tag) -> None:
    asked = asyncio.Event()

    async def listen(_: str, __: bytes) -> None:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(runtime.run(shell("echo hello; sleep 1000", tag.word), listen))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tag.pids() == []


async def test_hundreds_at_once(runtime: Runtime, tag: Tag) -> None:
    told: dict[str, Told] = {f"t{n}": Told() for n in range(300)}
    runs = [
        asyncio.create_task(runtime.run(shell("echo $SKEP_TASK; sleep 1000", tag.word, task=name), told[name]))
        for name in told
    ]
    await until(lambda: all(each.stdout for each in told.values()))
    assert len(runtime.running) == 300
    for name in told:
        await runtime.cancel(name, 1)
    async with asyncio.timeout(DEADLINE):
        ends = await asyncio.gather(*runs)
    assert all(each.stdout == f"{name}\n".encode() for name, each in told.items())
    assert len(ends) == 300 and tag.pids() == []
