"""Git as a child process: an environment built from nothing, a group of its own, bounds on all it may use."""

import asyncio
import os
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from skep.base.errors import Unavailable
from skep.base.io import SocketStream, Stream, pump, socket_pair
from skep.sources.model import Failure, FailureClass

#: what every git here is told; by environment, as other users can read command lines
_CONFIG: tuple[tuple[str, str], ...] = (
    ("safe.directory", "*"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.bigFileThreshold", "16m"),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("pack.threads", "1"),
    ("protocol.version", "2"),
)
#: in the environment of a git that asks an upstream: the folder of its worker, by which whoever comes next finds it
OWNER = "SKEP_GIT_OWNER"
_LONGEST_ERR = 65_536
#: how a shell limits what comes after it, in blocks of so many bytes
_LIMITED, _BLOCK = 'ulimit -f "$0" && exec "$@"', 512
_PROGRESS_END = re.compile(r"\r(?=.)", re.DOTALL)


class Result(NamedTuple):
    #: negative: ended by this signal
    code: int
    out: bytes
    #: the last of what it said
    err: str


class TookTooLong(Exception):
    pass


class SaidTooMuch(Exception):
    pass


def environment(
    config: Iterable[tuple[str, str]] = (), *, protocols: str = "none", extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """`protocols` are those this one child may speak."""
    values = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **(extra or {}),
    }
    pairs = [*_CONFIG, *config]
    values["GIT_CONFIG_COUNT"] = str(len(pairs))
    for n, (key, value) in enumerate(pairs):
        values[f"GIT_CONFIG_KEY_{n}"], values[f"GIT_CONFIG_VALUE_{n}"] = key, value
    return values


async def run(
    args: Sequence[str | bytes],
    env: Mapping[str, str],
    *,
    seconds: float,
    input: bytes = b"",
    largest: int = 64 << 20,
    file_limit: int | None = None,
    hear: Callable[[str], None] | None = None,
    keep: Sequence[int] = (),
) -> Result:
    """Run `git args`. `hear` gets each line of stderr; `keep` are descriptors the child inherits.

    TookTooLong, SaidTooMuch, or whatever cancels this: by then the whole group is dead.
    """
    child = await start(args, env, keep=keep, file_limit=file_limit)
    assert child.stdin and child.stdout and child.stderr
    try:
        async with asyncio.timeout(seconds):
            _, out, err, code = await asyncio.gather(
                _feed(child.stdin, input), _collect(child.stdout, largest), _listen(child.stderr, hear), child.wait()
            )
    except BaseException as error:
        kill(child)  # a helper of its group may go on although git itself has ended
        if isinstance(error, TimeoutError):
            raise TookTooLong(f"git took longer than {seconds:g} s") from None
        raise
    finally:
        await end(child)
    return Result(code, out, err)


async def start(
    args: Sequence[str | bytes],
    env: Mapping[str, str],
    *,
    keep: Sequence[int] = (),
    quiet: bool = False,
    io: int = asyncio.subprocess.PIPE,
    file_limit: int | None = None,
) -> asyncio.subprocess.Process:
    """`io` is what it reads from and writes to; `file_limit`: bytes of any file that it, or what it starts, writes."""
    err = asyncio.subprocess.DEVNULL if quiet else asyncio.subprocess.PIPE
    # by a shell, as a limit that is set from outside comes too late for what git has started by then
    before = () if file_limit is None else ("/bin/sh", "-c", _LIMITED, str(-(-file_limit // _BLOCK)))
    try:
        child = await asyncio.create_subprocess_exec(
            *(*before, "git", *args), env=env, stdin=io, stdout=io, stderr=err, start_new_session=True, pass_fds=keep
        )
    except FileNotFoundError:
        raise Unavailable("git is not installed, or not in PATH", hint="install git 2.31 or newer") from None
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))
    return child


async def end(child: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of the group is left."""
    if child.returncode is None:
        kill(child)
    for number in range(3):  # while a pipe has something to read, waiting does not end
        if pipe := child._transport.get_pipe_transport(number):  # type: ignore[attr-defined]
            pipe.close()
    await asyncio.shield(child.wait())


def kill(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        # a child may be gone before it read anything
        if data and not stream.is_closing():
            stream.write(data)
            await stream.drain()
    stream.close()  # and not waited for: asyncio stumbles over its own future when that was cancelled


async def _collect(stream: asyncio.StreamReader, largest: int) -> bytes:
    parts, size = [], 0
    while chunk := await stream.read(1 << 16):
        parts.append(chunk)
        size += len(chunk)
        if size > largest:
            raise SaidTooMuch(f"git printed more than {largest:,} bytes")
    return b"".join(parts)


async def _listen(stream: asyncio.StreamReader, hear: Callable[[str], None] | None) -> str:
    """Lines end with a carriage return while git draws its progress; those are heard but not kept. (ssh ends its own
    with both, and what ends with the first may be half of that.)"""
    kept, rest = "", ""
    while chunk := await stream.read(1 << 16):
        text = (rest + chunk.decode("utf-8", "replace")).replace("\r\n", "\n")
        *lines, rest = _PROGRESS_END.sub("\r\n", text).split("\n")
        for line in lines:
            if hear is not None:
                hear(line.strip())
            if not line.endswith("\r"):
                kept = (kept + line + "\n")[-_LONGEST_ERR:]
        rest = rest[-_LONGEST_ERR:]
    return kept + rest


# What git's complaints mean (pure). Every failure exits with 128, so its words must tell.

#: in this order: a full disk also looks like a broken pack
_MEANINGS: tuple[tuple[str, FailureClass, str], ...] = (
    (r"No space left on device|Disk quota exceeded", "disk", "the disk is full"),
    (r"File too large", "too_big", "the repository is larger than `max_repository`"),
    (r"fsck error|corruption on the remote side", "corrupt", "the upstream sends objects that are not sound"),
    (r"Authentication failed|could not read (?:Username|Password)|Permission denied|terminal prompts disabled"
     r"|requested URL returned error: 40[13]", "auth", "the upstream asks for a password or key"),
    (r"Host key verification failed|REMOTE HOST IDENTIFICATION", "blocked",
     "the host's ssh key is not the one known from before"),
    (r"transport '.*' not allowed|unable to update url base from redirection", "blocked",
     "the upstream sends us elsewhere"),
    (r"not appear to be a git repository|not a git repository|Could not read from remote repository.*not found"
     r"|invalid gitfile"
     r"|Too many levels of symbolic links|Not a directory|access denied or repository not exported", "not_git",
     "it is not a git repository"),
    (r"[Rr]epository .*not found|requested URL returned error: 4(?:04|10)|No such file or directory", "gone",
     "there is no such repository"),
    (r"requested URL returned error: 429", "rate_limited", "the server says we ask too often"),
    (r"[Tt]imed out|Operation too slow|Could(?: not|n't) (?:resolve|connect)|Connection (?:refused|reset)|early EOF"
     r"|hung up unexpectedly|unexpected disconnect|transfer closed|returned error: 5|SSL|TLS|unable to access",
     "network", "the connection failed"),
    (r"bad object|missing (?:blob|tree|commit)|invalid index-pack output|loose object .* corrupt|inflate: "
     r"|pack has bad", "corrupt", "the data is damaged"),
)  # fmt: skip
#: upstream's own words may not carry control characters or secrets into our pages and logs
_NOISE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_USERINFO = re.compile(r"//[^/@\s]*@")
_CONFLICT = re.compile(r"'refs/.+' exists; cannot create|there are still refs under")


def is_ref_conflict(result: Result) -> bool:
    """A branch `a` stands where upstream now has `a/b`, or the other way round."""
    return result.code != 0 and bool(_CONFLICT.search(result.err))


def failure_of(result: Result, url: str) -> Failure:
    said = _words(result.err)
    for pattern, kind, meaning in _MEANINGS:
        if re.search(pattern, result.err, re.DOTALL):
            return Failure(kind, f"{url}: {meaning} ({said})" if said else f"{url}: {meaning}")
    return Failure("network", f"{url}: {said or f'git ended with {result.code}'}")


def _words(err: str) -> str:
    lines = [line.strip() for line in err.splitlines()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))] or lines
    return _USERINFO.sub("//", _NOISE.sub("", "; ".join(line for line in telling[:3] if line)))[:400]


# Git through a stream of bytes instead of a URL: how mirrors pass between machines that cannot dial each other.

#: a new stream to the mirror that is copied; each git process needs one
Opened = Callable[[], AbstractAsyncContextManager[Stream]]


async def give(folder: Path, stream: Stream) -> None:
    """Serve the mirror, with its hidden refs, until the other side has what it wants or is gone."""
    async with socket_pair() as (ours, theirs):
        env = environment(extra={"GIT_PROTOCOL": "version=2"})
        child = await start(("upload-pack", "--strict", str(folder)), env, quiet=True, io=theirs.fileno())
        theirs.close()
        try:
            await pump(ours, stream)
        finally:
            await end(child)


@asynccontextmanager
async def reached(opened: Opened) -> AsyncIterator[tuple[str, int]]:
    """A URL for one git process, and the descriptor it has to inherit. (Unlike `ext::`, `fd::` runs nothing.)"""
    async with opened() as stream, socket_pair() as (ours, theirs):
        pumping = asyncio.create_task(_pump(ours, stream))
        try:
            yield f"fd::{theirs.fileno()}", theirs.fileno()
        finally:
            pumping.cancel()
            await asyncio.gather(pumping, return_exceptions=True)


async def _pump(ours: SocketStream, stream: Stream) -> None:
    """When the stream breaks off, git has to see it."""
    try:
        await pump(ours, stream)
    finally:
        ours.close()
