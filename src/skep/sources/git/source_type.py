"""Git as a kind of source: look by our own exchange where HTTP is spoken, by a git process elsewhere; fetch by git."""

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from skep.base.clock import Clock, SystemClock
from skep.base.errors import NoSpace, SkepError, Unavailable
from skep.base.globs import compile_globs
from skep.config.settings import Settings
from skep.net import urls
from skep.net.guard import Guard, Lookup, system_lookup
from skep.net.urls import PORTS, Parts
from skep.sources.credentials import Keyring, refused
from skep.sources.git.http import Http
from skep.sources.git.ls_refs import (
    LARGEST_ANSWER,
    BadAnswer,
    LsRefs,
    Selection,
    announced,
    ca_bundle,
    check_patterns,
    parse_ls_remote,
    selection,
)
from skep.sources.git.mirror import Mirror, Policy, Upstream, fetch_environment, folder_of, pack_bytes
from skep.sources.git.process import OWNER, SaidTooMuch, TookTooLong, failure_of, run
from skep.sources.model import Failure, Held, Key, SourceSettings
from skep.sources.source_type import Ask, Look, Moved, Report

# What the catalogue knows of git: its URLs, and which of them may be added.


def allows_local(settings: Settings) -> bool:
    return settings.loopback if settings.allow_local is None else settings.allow_local


class GitAddresses:
    clean = staticmethod(urls.clean)
    canonical = staticmethod(urls.canonical)
    name = staticmethod(urls.name)
    host = staticmethod(urls.host_of)

    def __init__(self, settings: Settings) -> None:
        clock = SystemClock()
        self._for_admins = Guard(settings, clock, local=allows_local(settings))
        self._for_others = Guard(settings, clock, local=False)

    def check(self, url: str, *, local: bool) -> None:
        (self._for_admins if local else self._for_others).check_url(url)
        urls.canonical(url)

    def check_settings(self, settings: SourceSettings) -> None:
        if settings.refs is not None:
            check_patterns(settings.refs)
        if settings.branches:
            compile_globs(settings.branches, "branches")


# How many bytes all mirrors of a worker may have together.

_UNBOUNDED = 1 << 62


class Quota:
    def __init__(self, mirrors: Path, most: int) -> None:
        """`most` 0: no limit, and nothing is counted."""
        self._mirrors = mirrors
        self._most = most
        self._used: int | None = None

    @asynccontextmanager
    async def room(self, folder: Path, *, need: bool = True) -> AsyncIterator[int]:
        """Bytes that the mirror may grow by while this is open; NoSpace when there are none and they are needed."""
        if not self._most:
            yield _UNBOUNDED
            return
        if self._used is None:
            self._used = await asyncio.to_thread(self._count)
        if need and self._used >= self._most:
            raise NoSpace(f"the mirrors have {self._used:,} bytes; `max_mirrors` permits {self._most:,}")
        before = pack_bytes(folder)
        try:
            yield max(1, self._most - self._used)
        finally:
            self._used += pack_bytes(folder) - before

    def _count(self) -> int:
        return sum(pack_bytes(folder) for folder in self._mirrors.glob("*/*/*.git"))


class GitKind:
    def __init__(self, settings: Settings, data: Path, clock: Clock, *, lookup: Lookup = system_lookup) -> None:
        self._settings = settings
        self._data = data
        self._clock = clock
        self._guard = Guard(settings, clock, local=allows_local(settings), lookup=lookup)
        self._keyring = Keyring()
        self._quota = Quota(data / "mirrors", settings.max_mirrors)
        self._ca = ca_bundle()
        self._http: Http | None = None
        self._refs: LsRefs | None = None

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        try:
            parts = self._guard.check_url(source.url)
            wanted = selection(source.settings.refs)
            # what is lost, not finished, or damaged, is fetched although nothing moved
            seen = "" if self.heavy(source) or not self.folder(source).exists() else source.seen
            if parts.scheme in {"http", "https"}:
                key = self._keyring.find(source, parts)
                found = await self._ls_refs().ask(source.url, parts, seen, wanted, [key.header] if key else [])
                return refused(found, key, source) if isinstance(found, Failure) else found
            return await self._look_by_process(parts, seen, wanted)
        except SkepError as error:
            return _refused(error)

    def heavy(self, source: Held) -> bool:
        """Or there is nothing yet, and its forge says that it is huge."""
        mirror = Mirror(self.folder(source))
        return bool(mirror.todo) or (source.size > self._settings.huge_over and not mirror.folder.exists())

    def more(self, source: Held) -> bool:
        return self.heavy(source)

    def changed(self, source: Held) -> bool:
        return False

    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        mirror = Mirror(self.folder(source))
        try:
            url = self._ls_refs().spelling(source.url)
            parts = self._guard.check_url(url)
            key = self._keyring.find(source, parts)
            url, env = await self._way(parts, url, key)
            async with self._quota.room(mirror.folder) as room:
                await mirror.create(source.url, moved.versions)
                upstream = Upstream(source.url, url, env, moved.versions)
                found = await mirror.fetch(upstream, self._policy(source, room), report, self._clock.now())
            if isinstance(found, Failure) and found.kind == "too_big" and room < self._settings.max_repository:
                return Failure("disk", f"{source.url} does not fit into `max_mirrors`")
            return refused(found, key, source) if isinstance(found, Failure) else found
        except SkepError as error:
            return _refused(error)
        except (TookTooLong, SaidTooMuch) as error:
            return Failure("network", f"{source.url}: {error}")
        except (socket.gaierror, TimeoutError):
            return Failure("network", f"the host of {source.url} was not found")
        except OSError as error:
            return Failure("disk", f"the mirror of {source.url} cannot be written: {error}")

    async def versions(self, source: Held) -> Mapping[str, str]:
        return await Mirror(self.folder(source)).versions()

    async def mend(self, source: Held) -> Failure | None:
        try:
            return await Mirror(self.folder(source)).mend()
        except SkepError as error:
            return _refused(error)
        except OSError as error:
            return Failure("disk", f"the mirror of {source.url} cannot be used: {error}")

    async def check(self, source: Held) -> Failure | None:
        return await Mirror(self.folder(source)).check(self._settings.fetch_timeout)

    async def remove(self, source: Held) -> None:
        async with self._quota.room(self.folder(source), need=False):
            await Mirror(self.folder(source)).remove()

    def connect(self, ask: Ask) -> None:
        """A mirror is all that it needs."""

    def unlock(self, keys: Sequence[Key]) -> None:
        self._keyring.fill(keys)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    def folder(self, source: Held) -> Path:
        return folder_of(self._data, source.source)

    def _policy(self, source: Held, room: int) -> Policy:
        settings = self._settings
        return Policy(
            selection(source.settings.refs),
            source.settings.force_push or settings.force_push,
            source.accepted,
            keep=settings.keep_tips,
            largest=min(settings.max_repository, room),
            huge=0 if source.size > settings.huge_over else settings.huge_over,
            seconds=settings.fetch_timeout,
        )

    def _ls_refs(self) -> LsRefs:
        if self._refs is None:
            self._http = Http(
                ca=self._ca,
                timeout=self._settings.look_timeout,
                largest=LARGEST_ANSWER,
                connections=max(self._settings.poll_concurrency, 64),
            )
            self._refs = LsRefs(self._http, self._guard, self._clock)
        return self._refs

    async def _look_by_process(self, parts: Parts, seen: str, wanted: Selection) -> Look:
        try:
            url, env = await self._way(parts, str(parts))
            args = ("ls-remote", "--symref", "--", url, "HEAD", *wanted.patterns)
            done = await run(args, env, seconds=self._settings.look_timeout, largest=LARGEST_ANSWER)
            if done.code:
                return failure_of(done, str(parts))
            return announced("ls", parse_ls_remote(done.out).versions(wanted.of), seen, wanted)
        except (OSError, TookTooLong, SaidTooMuch, BadAnswer) as error:
            return Failure("network", f"{parts}: {error}")

    async def _way(self, parts: Parts, url: str, key: Key | None = None) -> tuple[str, dict[str, str]]:
        """The URL to give to git and its environment, which together lead only to addresses that were checked."""
        own = {OWNER: str(self._data.absolute())}
        if parts.scheme == "file":
            return url, fetch_environment("file", (), own | {"GIT_CONFIG_GLOBAL": str(self._trusting_config())})
        if parts.scheme in {"http", "https"}:
            pins = await self._guard.pins(parts)
            config = [("http.curloptResolve", pin) for pin in pins]
            if key is not None:  # by environment, which other users cannot read, and for this host only
                config.append((f"http.{parts.scheme}://{parts.authority}/.extraHeader", key.header))
            return url, fetch_environment(parts.scheme, (*config, ("http.sslCAInfo", self._ca)), own)
        address = (await self._guard.resolve(parts.host, parts.port))[0]
        if parts.scheme == "git":
            host = own | {"GIT_OVERRIDE_VIRTUAL_HOST": parts.authority}
            return str(msgspec.structs.replace(parts, host=address)), fetch_environment("git", (), host)
        ssh = own | {"GIT_SSH_COMMAND": self._ssh(parts, address), "GIT_SSH_VARIANT": "ssh"}
        if agent := os.environ.get("SSH_AUTH_SOCK"):
            ssh["SSH_AUTH_SOCK"] = agent
        return url, fetch_environment("ssh", (), ssh)

    def _ssh(self, parts: Parts, address: str) -> str:
        alias = parts.host if parts.port == PORTS["ssh"] else f"[{parts.host}]:{parts.port}"
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(self._data.absolute() / "known_hosts"),
            "HostName": address,
            "HostKeyAlias": alias,
            "ConnectTimeout": "15",
            "ServerAliveInterval": "15",
            "ForwardAgent": "no",
            "ClearAllForwardings": "yes",
        }
        words = ["ssh", "-F", "none", *(f"-o{key}={value}" for key, value in options.items())]
        return shlex.join(words)

    def _trusting_config(self) -> Path:
        """A folder of another user may be mirrored; git asks for that in a file, as its own child reads it."""
        path = self._data.absolute() / "gitconfig"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
        return path


def _refused(error: SkepError) -> Failure:
    words = f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, NoSpace):
        return Failure("disk", words)
    return Failure("internal" if isinstance(error, Unavailable) else "blocked", words)
