"""Read-only git over smart HTTP, at /git/<name>.git, and the manifest of all. Bare ASGI: packs stream through without
being held.

A stranger who asks for what is not there is asked for a password first, as git sends the one in its URL only then;
so private sources and missing ones look the same.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from email.utils import formatdate, mktime_tz, parsedate_tz
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, unquote_to_bytes

from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter
from litestar.types import HTTPScope, Receive, Send

from skep.base.caller import Caller
from skep.base.errors import BadInput, Busy, Damaged, NeedsToken, NotAllowed, NotFound, NotHere, TooLarge
from skep.config.settings import Settings
from skep.interfaces.http.asgi import left, respond, unless
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web.highlighter import Painter
from skep.interfaces.web.render import page
from skep.mirrors.access import Gather, Manifest, Repository
from skep.sources.git.ls_refs import OWN
from skep.sources.git.process import end, environment, kill, start

# Folders and files of a mirror.

#: lines of a file on one page
WINDOW = 20_000

Rev = Annotated[str, QueryParameter(max_length=1000)]
LineNumber = Annotated[int, QueryParameter(ge=1, le=1 << 31)]


@get(["/sources/{id:str}/tree", "/sources/{id:str}/tree/{path:path}"])
async def tree_page(request: Asked, core: TheCore, caller: Asker, id: FromPath[str], rev: Rev = "") -> Response[bytes]:
    tree = await core.gather.tree(caller, id, _path(request), rev)
    return page(request, "tree.html", source=tree.source, tree=tree, rev=rev)


@get("/sources/{id:str}/commit/{commit:str}")
async def commit_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], commit: FromPath[str]
) -> Response[bytes]:
    return page(request, "commit.html", found=await core.gather.commit(caller, id, commit))


@get("/sources/{id:str}/file/{path:path}")
async def file_page(
    *,
    request: Asked,
    core: TheCore,
    caller: Asker,
    state: State,
    id: FromPath[str],
    rev: Rev = "",
    line: LineNumber = 1,
) -> Response[bytes]:
    file = await core.gather.file(caller, id, _path(request), rev)
    lines = None
    if file.text is not None and file.link is None:
        lines = await _painter(state).lines(file.path, file.text.removesuffix("\n"))
    first = max(0, line - 1 - WINDOW // 2) if line > WINDOW else 0
    values: dict[str, Any] = {
        "source": file.source,
        "file": file,
        "rev": rev,
        "lines": lines,
        "first": first,
        "window": WINDOW,
    }
    return page(request, "file.html", **values)


def _path(request: Asked) -> str:
    """From the raw path: file names are bytes, and not all of them are UTF-8."""
    raw: bytes = request.scope["raw_path"].partition(b"?")[0]
    after = [part for part in raw.split(b"/") if part][3:]
    return unquote_to_bytes(b"/".join(after)).decode("utf-8", "surrogateescape").strip("/")


def _painter(state: State) -> Painter:
    if "painter" not in state:
        state["painter"] = Painter()
    painter: Painter = state["painter"]
    return painter


async def close(app: Litestar) -> None:
    if "painter" in app.state:
        await app.state["painter"].close()


# Read-only smart HTTP from a mirror: `git upload-pack` behind two streams. The door carries them.

AT_ONCE = 16
WAITING = 256
LONGEST = 3_600.0
_BLOCK = 1 << 16
_CONFIG = (
    ("uploadpack.allowFilter", "true"),
    ("uploadpack.allowAnySHA1InWant", "false"),
    ("transfer.hideRefs", OWN),
)
_PROTOCOL = re.compile(r"version=[0-2](:[a-z0-9=:-]{0,60})?")
_SERVICE = b"001e# service=git-upload-pack\n0000"


class Turnstile:
    """So many children at once, so many callers waiting for one; the rest are told to come back."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, seconds: float = LONGEST) -> None:
        #: longest time for one child
        self.seconds = seconds
        self._free = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._inside >= self._most:
            raise Busy("too many clones at once", hint="try again in a minute")
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1


def info_refs(folder: Path, protocol: str, turnstile: Turnstile | None = None) -> AsyncGenerator[bytes, None]:
    """The answer to GET info/refs?service=git-upload-pack."""
    protocol = _known(protocol)
    head = b"" if protocol.startswith("version=2") else _SERVICE
    return _upload_pack(folder, None, protocol, turnstile, "--http-backend-info-refs", head=head)


def upload_pack(
    folder: Path, body: AsyncIterable[bytes], protocol: str, turnstile: Turnstile | None = None
) -> AsyncGenerator[bytes, None]:
    """The answer to POST git-upload-pack; `body` is already unzipped and bounded. Close it when the client is gone."""
    return _upload_pack(folder, body, _known(protocol), turnstile)


async def _upload_pack(
    folder: Path,
    body: AsyncIterable[bytes] | None,
    protocol: str,
    turnstile: Turnstile | None,
    *flags: str,
    head: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    env = environment(_CONFIG, extra={"GIT_PROTOCOL": protocol})
    args = ("upload-pack", "--strict", "--stateless-rpc", "--timeout=600", *flags, str(folder))
    turnstile = turnstile or Turnstile()
    async with turnstile.turn():
        child = await start(args, env, quiet=True)
        assert child.stdin and child.stdout
        feeding = asyncio.ensure_future(_feed(child.stdin, body))
        deadline = asyncio.get_running_loop().call_later(turnstile.seconds, kill, child)
        try:
            said = b""
            while chunk := await child.stdout.read(_BLOCK):
                yield chunk if said else head + chunk
                said = chunk
            if await child.wait() and not said:
                await feeding
                raise Damaged(f"{folder.name} cannot be served", hint="is the request one of git's?")
        finally:
            deadline.cancel()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await end(child)


async def _feed(stdin: asyncio.StreamWriter, body: AsyncIterable[bytes] | None) -> None:
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            if body is not None:
                async for chunk in body:
                    stdin.write(chunk)
                    await stdin.drain()
    finally:
        stdin.close()


def _known(protocol: str) -> str:
    """The client's Git-Protocol header goes into an environment: only what we understand."""
    return protocol if _PROTOCOL.fullmatch(protocol) else ""


BODY_LIMIT = 64_000_000
_READ_ONLY = "this is a mirror: pushing is not possible"
_READ_ONLY_HINT = "push to the repository it mirrors"


class GitDoor:
    def __init__(self, gather: Gather, settings: Settings) -> None:
        self._gather = gather
        self._turnstile = Turnstile(settings.clone_concurrency, seconds=settings.clone_timeout)

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/git/manifest.js.gz" and scope["method"] == "GET":
            await _send_manifest(await self._gather.manifests.of(scope["user"]), scope, send)
            return
        found = await self._find(scope)
        folder, rest = found.folder, found.rest
        protocol = _field(scope, b"git-protocol")
        body = Body(scope, receive)
        if rest == "info/refs":
            _check_service(scope)
            await body.skip()
            if found.moved:
                await _redirect(found.source.name, scope, send)
            else:
                await _answer(info_refs(folder, protocol, self._turnstile), "advertisement", body, send)
        elif rest == "git-upload-pack":
            _check_post(scope)
            await _answer(upload_pack(folder, body.chunks(), protocol, self._turnstile), "result", body, send)
        elif rest == "git-receive-pack":
            raise NotAllowed(_READ_ONLY, hint=_READ_ONLY_HINT)
        else:
            raise NotFound(f"there is no {rest!r} in a repository here", hint="only smart HTTP is spoken: use git")

    async def _find(self, scope: HTTPScope) -> Repository:
        caller: Caller = scope["user"]
        try:
            return await self._gather.find_git(caller, scope["path"].removeprefix("/git"))
        except NotFound as error:
            if caller.known or isinstance(error, NotHere):
                raise
            raise NeedsToken(
                error.message, hint="is the name right? a private one needs a token as password"
            ) from error


class Body:
    """The request's body as it comes in, unzipped, and bounded."""

    def __init__(self, scope: HTTPScope, receive: Receive) -> None:
        encoding = _field(scope, b"content-encoding").lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise BadInput(f"content-encoding {encoding!r} is not understood", hint="send gzip or plain")
        self._unzip = zlib.decompressobj(31) if encoding.endswith("gzip") else None
        self._receive = receive
        self._left = BODY_LIMIT
        self._ended = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise BadInput("the client went away")
            more = message["more_body"]
            if chunk := self._plain(message["body"]):
                yield chunk
        self._ended.set()

    async def skip(self) -> None:
        async for _ in self.chunks():
            pass

    async def gone(self) -> None:
        """Returns when the client hangs up; by then nobody wants the pack."""
        await self._ended.wait()
        await left(self._receive)

    def _plain(self, chunk: bytes) -> bytes:
        if self._unzip is not None:
            try:
                chunk = self._unzip.decompress(chunk, self._left + 1)
            except zlib.error as error:
                raise BadInput("the body is not gzip, as its header says") from error
        self._left -= len(chunk)
        if self._left < 0:
            raise TooLarge(f"a request has at most {BODY_LIMIT} bytes")
        return chunk


async def _send_manifest(manifest: Manifest, scope: HTTPScope, send: Send) -> None:
    """304 when it is the one that the client has, by its ETag or, as grokmirror asks, by its date."""
    given, since = _field(scope, b"if-none-match"), parsedate_tz(_field(scope, b"if-modified-since"))
    same = manifest.etag in given if given else since is not None and mktime_tz(since) >= manifest.made
    marks = [(b"etag", manifest.etag.encode()), (b"last-modified", formatdate(manifest.made, usegmt=True).encode())]
    await respond(send, 304 if same else 200, b"" if same else manifest.body, "application/gzip", marks)


async def _redirect(name: str, scope: HTTPScope, send: Send) -> None:
    """git follows this first answer, tells its user, and asks everything else at the new place."""
    place = f"/git/{quote(name)}.git/info/refs".encode() + b"?" + scope["query_string"]
    headers = [(b"location", place), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 301, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(chunks: AsyncIterator[bytes], what: str, body: Body, send: Send) -> None:
    """Send what the child says; stop it when the client is gone."""
    await unless(body.gone(), _send(chunks, f"application/x-git-upload-pack-{what}", send))


async def _send(chunks: AsyncIterator[bytes], media: str, send: Send) -> None:
    headers = [(b"content-type", media.encode()), (b"cache-control", b"no-cache")]
    started = False
    async with aclosing(chunks) as parts:  # type: ignore[type-var]
        async for chunk in parts:
            if not started:  # an error before the first byte is still a proper answer
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if not started:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _check_service(scope: HTTPScope) -> None:
    if scope["method"] != "GET":
        raise BadInput("info/refs is read with GET")
    service = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
    if service == "git-receive-pack":
        raise NotAllowed(_READ_ONLY, hint=_READ_ONLY_HINT)
    if service != "git-upload-pack":
        raise NotAllowed("only smart HTTP is spoken here", hint="use git 1.6.6 or newer")


def _check_post(scope: HTTPScope) -> None:
    if scope["method"] != "POST":
        raise BadInput("git-upload-pack is asked with POST", hint="use git")
    if _field(scope, b"content-type") != "application/x-git-upload-pack-request":
        raise BadInput("this is no git request: its content-type is another", hint="use git")


def _field(scope: HTTPScope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), "")
