"""Secrets for upstreams and from webhooks. Those of skep.toml are read where it says; those of the API are files that
only this user may read. None is ever shown again."""

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path

import msgspec

from skep.access.audit import note
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, Damaged, NotFound, SkepError
from skep.base.io import write_private
from skep.net.urls import Parts
from skep.sources.git.process import end
from skep.sources.model import CredentialInfo, CredentialSpec, Failure, Held, Key, Use
from skep.sources.service import Sources
from skep.storage.database import Database, Tx

log = logging.getLogger(__name__)

#: rung when one was set or removed
CREDENTIALS = "credentials"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HOST = re.compile(r"[a-z0-9_.-]+(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?")
_USER = re.compile(r"[!-9;-~]{1,200}")
#: a word, or a certificate with its key
_SECRET = re.compile(r"[!-~]{1,4096}|-----BEGIN [A-Z ]+-----[ -~\r\n]{1,32000}-----END [A-Z ]+-----\s*")
#: a command is asked again after so long
_KEEP_SECONDS = 600.0
_COMMAND_SECONDS = 30.0
#: bytes of its answer
_MOST_SAID = 1 << 16


class _Stored(msgspec.Struct, frozen=True):
    spec: CredentialSpec
    token: str
    updated_at: float


class Credentials:
    def __init__(
        self, db: Database, clock: Clock, data: Path, sources: Sources, specs: Sequence[CredentialSpec] = ()
    ) -> None:
        self._db = db
        self._clock = clock
        self._folder = data / "credentials"
        self._sources = sources
        self._specs = {spec.name: spec for spec in specs}
        self._stored: dict[str, _Stored] = {}
        #: name -> until when the answer of its command is good
        self._said: dict[str, tuple[float, str]] = {}
        #: name -> what was logged of it
        self._troubles: dict[str, str] = {}

    async def start(self) -> None:
        for spec in self._specs.values():
            _check(spec)
            if [spec.token_file != "", spec.token_env != "", spec.command != ()].count(True) != 1:
                raise BadInput(f"credential {spec.name!r}: give one of token_file, token_env and command")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.glob("*.json"):
            try:
                one = msgspec.json.decode(path.read_bytes(), type=_Stored)
            except msgspec.DecodeError:
                raise Damaged(f"{path} cannot be read", hint="remove it, and set the credential again") from None
            self._stored[one.spec.name] = one

    async def put(self, caller: Caller, spec: CredentialSpec, token: str) -> CredentialInfo:
        """Make it, or give it another secret: workers use it at once."""
        caller.need("admin")
        _check(spec)
        if not _SECRET.fullmatch(token):
            raise BadInput(
                "a secret has 1 to 4096 printable ASCII characters and no blanks, or it is a certificate in PEM"
            )
        if spec.name in self._specs:
            raise Conflict(f"{spec.name!r} stands in skep.toml", hint="change it there, or choose another name")
        source = (await self._sources.show(caller, spec.source)).id if spec.source else ""
        stored = _Stored(msgspec.structs.replace(spec, source=source), token, self._clock.now())
        await asyncio.to_thread(write_private, self._folder / f"{spec.name}.json", msgspec.json.encode(stored))
        self._stored[spec.name] = stored
        await self._changed(caller, "credential.put", spec.name)
        return next(info for info in await self.list(caller) if info.name == spec.name)

    async def remove(self, caller: Caller, name: str) -> None:
        caller.need("admin")
        if name not in self._stored:
            raise NotFound(f"no credential {name!r} was set here", hint="those of skep.toml are removed there")
        del self._stored[name]
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        await self._changed(caller, "credential.remove", name)

    async def keys(self) -> tuple[Key, ...]:
        """What workers show to upstreams."""
        return tuple(await self._with_secrets("fetch"))

    async def hooks(self) -> list[Key]:
        """What senders of webhooks have to prove that they know."""
        return await self._with_secrets("hook")

    async def apis(self, host: str) -> list[Key]:
        """What a host may be shown when it is asked for its repositories. SkepError when one cannot be read: asked
        without it, the host would show less, and what it does not show would be removed."""
        specs = [spec for spec in self._all() if spec.use == "api" and spec.host == host]
        return [Key(spec.name, host, "", spec.user, await self._secret(spec), spec.public) for spec in specs]

    async def _with_secrets(self, use: Use) -> list[Key]:
        found = []
        for spec in [spec for spec in self._all() if spec.use == use]:
            try:
                source = (await self._sources.show(SYSTEM, spec.source)).id if spec.source else ""
                token = await self._secret(spec)
            except SkepError as error:
                if self._troubles.get(spec.name) != error.message:
                    log.warning("a credential cannot be used", extra={"credential": spec.name, "reason": error.message})
                self._troubles[spec.name] = error.message
                continue
            self._troubles.pop(spec.name, None)
            found.append(Key(spec.name, spec.host, source, spec.user, token, spec.public))
        return found

    def _all(self) -> list[CredentialSpec]:
        return [*self._specs.values(), *(stored.spec for stored in self._stored.values())]

    async def _secret(self, spec: CredentialSpec) -> str:
        if spec.name in self._stored:
            return self._stored[spec.name].token
        if spec.command:
            text = await self._ask(spec)
        elif spec.token_env:
            text = os.environ.get(spec.token_env, "")
        else:
            try:
                text = await asyncio.to_thread(Path(spec.token_file).read_text, encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                raise NotFound(f"{spec.token_file} cannot be read") from None
        if not _SECRET.fullmatch(text.strip()):
            raise NotFound(f"{spec.token_env or spec.token_file or spec.command[0]} gives no secret")
        return text.strip()

    async def _ask(self, spec: CredentialSpec) -> str:
        until, text = self._said.get(spec.name, (0.0, ""))
        if until > self._clock.now():
            return text
        null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        try:
            child = await asyncio.create_subprocess_exec(
                *spec.command, stdin=null, stdout=pipe, stderr=null, start_new_session=True
            )
        except OSError:
            raise NotFound(f"{spec.command[0]} cannot be run") from None
        assert child.stdout is not None
        out = b""
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                while more := await child.stdout.read(_MOST_SAID):
                    out += more
                    if len(out) > _MOST_SAID:
                        raise NotFound(f"{spec.command[0]} says more than any secret")
                code = await child.wait()
        except TimeoutError:
            raise NotFound(f"{spec.command[0]} took longer than {_COMMAND_SECONDS:g} s") from None
        finally:
            await end(child)
        text = "" if code else out.decode("ascii", "replace")
        self._said[spec.name] = (self._clock.now() + _KEEP_SECONDS, text)
        return text

    async def _changed(self, caller: Caller, verb: str, name: str) -> None:
        async def work(tx: Tx) -> None:
            await note(tx, self._clock.now(), caller, verb, name)
            tx.ring(CREDENTIALS)

        await self._db.write(work)

    async def list(self, caller: Caller) -> list[CredentialInfo]:
        caller.need("admin")
        return [await self._info(spec) for spec in self._all()]

    async def _info(self, spec: CredentialSpec) -> CredentialInfo:
        rows = await self._db.read(
            "SELECT count(*) AS n FROM source WHERE state = 'failing' AND failure LIKE :mark ESCAPE '!'",
            mark='%"credential":"' + spec.name.replace("_", "!_") + '"%',
        )
        problem, stored = "", self._stored.get(spec.name)
        try:
            await self._secret(spec)
        except SkepError as error:
            problem = error.message
        at = stored.updated_at if stored else None
        told = (spec.name, spec.host, spec.source, spec.use, spec.user, spec.public)
        return CredentialInfo(*told, stored is not None, _origin(spec), at, int(rows[0]["n"]), problem)


def _origin(spec: CredentialSpec) -> str:
    places = (("file", spec.token_file), ("variable", spec.token_env), ("command", " ".join(spec.command[:1])))
    return next((f"{kind} {place}" for kind, place in places if place), "")


def _check(spec: CredentialSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise BadInput(f"{spec.name[:100]!r} is no name of a credential", hint="letters, digits, '.', '-' and '_'")
    if not _HOST.fullmatch(spec.host):
        raise BadInput(f"credential {spec.name!r}: {spec.host[:100]!r} is no host", hint="such as github.com")
    if not _USER.fullmatch(spec.user):
        raise BadInput(f"credential {spec.name!r}: the user is no plain name", hint="printable, and no colon")


# Which credential an upstream is shown: the source's own before its host's, and none in the clear.


class Keyring:
    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Key] = {}

    def fill(self, keys: Iterable[Key]) -> None:
        self._keys = {(key.host, key.source): key for key in keys}

    def find(self, source: Held, parts: Parts, *, certificates: bool = False) -> Key | None:
        """A host's key opens private sources only, unless it says otherwise: adding a URL must not publish a secret."""
        if not self._keys or not sealed(parts):
            return None
        key = self._keys.get((parts.authority, source.source))
        shared = self._keys.get((parts.authority, ""))
        found = key or (shared if shared and (shared.public or source.visibility == "private") else None)
        return found if found and (certificates or not found.certificate) else None


def sealed(parts: Parts) -> bool:
    """Nobody on the way can read it."""
    if parts.scheme != "http":
        return parts.scheme == "https"
    try:
        return ip_address(parts.host).is_loopback
    except ValueError:
        return False


def refused(failure: Failure, key: Key | None, source: Held) -> Failure:
    """A failure as it was, or, where a credential did not help, one that names it."""
    if key is None or failure.kind != "auth":
        return failure
    why = "is no longer accepted, it may have expired" if source.batches else "is not accepted"
    message = (
        f"{source.url}: the credential '{key.name}' {why}; `skep credential set {key.name}` gives it another secret"
    )
    return Failure("auth", message, credential=key.name)
