"""Read-only git over smart HTTP, at /git/<name>.git, and the manifest of all. Bare ASGI: packs stream through without
being held.

A stranger who asks for what is not there is asked for a password first, as git sends the one in its URL only then;
so private sources and missing ones look the same.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from email.utils import formatdate, mktime_tz, parsedate_tz
from urllib.parse import parse_qs, quote

from litestar.types import HTTPScope, Receive, Send

from skep.config import Settings
from skep.doors.http.bare import left, respond, unless
from skep.errors import BadInput, NeedsToken, NotAllowed, NotFound, NotHere, TooLarge
from skep.gather.manifest import Manifest
from skep.gather.service import Gather, Repository
from skep.model.caller import Caller
from skep.sources.git import serve

BODY_LIMIT = 64_000_000
_READ_ONLY = "this is a mirror: pushing is not possible"
_READ_ONLY_HINT = "push to the repository it mirrors"


class GitDoor:
    def __init__(self, gather: Gather, settings: Settings) -> None:
        self._gather = gather
        self._turnstile = serve.Turnstile(settings.clone_concurrency, seconds=settings.clone_timeout)

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
                await _answer(serve.info_refs(folder, protocol, self._turnstile), "advertisement", body, send)
        elif rest == "git-upload-pack":
            _check_post(scope)
            await _answer(serve.upload_pack(folder, body.chunks(), protocol, self._turnstile), "result", body, send)
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
