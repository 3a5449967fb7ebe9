"""A node's API, under /cn/v1 and /cn/v2 or, where we hold copies, /mn/v1 and /mn/v2. Bare ASGI: an identifier is one
segment, whatever it holds."""

import re
from urllib.parse import parse_qsl

from litestar.types import HTTPScope, Receive, Send

from skep.clock import Clock
from skep.dataone.forms import read_form
from skep.dataone.service import DataOne
from skep.dataone.types import Doc
from skep.dataone.xml import LARGEST, render
from skep.doors.http.cn.call import Answer, Call, Calls, Reading
from skep.doors.http.cn.calls import HEAD_CALLS
from skep.doors.http.cn.wrong import NotOffered
from skep.doors.http.publish import read_body

_XML = "text/xml"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


class NodeDoor:
    def __init__(self, path: str, dataone: DataOne, here: Reading, calls: Calls, clock: Clock) -> None:
        """`here` is read from; `calls` are offered."""
        self._path = path
        self._dataone = dataone
        self._here = here
        self._calls = calls
        self._clock = clock

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        call, name = await self._call(scope, receive)
        handler = self._calls.get(name)
        if scope["method"] == "HEAD":
            handler = HEAD_CALLS.get(name, handler)
        if handler is None:
            raise NotOffered(f"{scope['method']} {scope['path'][:200]} is not offered here")
        answer = await handler(call)
        await _send(answer, call.version, send)

    async def _call(self, scope: HTTPScope, receive: Receive) -> tuple[Call, tuple[str, str]]:
        raw = scope["raw_path"].split(b"?")[0].decode("latin-1")
        version, word, *rest = [*raw.removeprefix(self._path).split("/"), ""]
        if version not in ("v1", "v2"):
            raise NotOffered(f"there is no version {version[:20]!r} here")
        body = await read_body(receive, LARGEST)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        media = next((value for name, value in scope["headers"] if name == b"content-type"), b"").decode("latin-1")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        names = [part for part in rest if part]
        if word == "query" and method == "POST":
            method, query = "GET", [*query, *_form_query(media, body)]
        call = Call(
            self._dataone,
            self._here,
            scope["user"],
            int(version[1:]),
            tuple(names),
            query,
            read_form(media, body) if method in ("POST", "PUT") and body else {},
            self._clock.now(),
        )
        return call, (method, word)


def _form_query(media: str, body: bytes) -> list[tuple[str, str]]:
    if not body:
        return []
    if media.startswith("application/x-www-form-urlencoded"):
        return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return [(name, value.decode("utf-8", "replace")) for name, value in read_form(media, body).items()]


async def _send(answer: Answer, version: int, send: Send) -> None:
    body, media = answer.body, answer.media
    if isinstance(body, Doc):
        body, media = render(body, version), _XML
    headers: dict[str, str] = {"content-type": media, **answer.headers}
    first = b""
    if isinstance(body, bytes):
        headers.setdefault("content-length", str(len(body)))
    else:
        # what cannot be read is an error, which must be known before the answer begins
        first = await anext(body, b"")
    # what nodes say of objects is in them: a line break there must not begin a header of its own
    encoded = [
        (name.encode(), _CONTROLS.sub(" ", value).encode("latin-1", "replace")) for name, value in headers.items()
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async for chunk in body:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
