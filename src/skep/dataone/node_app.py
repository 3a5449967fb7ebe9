"""A node's API, under /cn/v1 and /cn/v2 or, where we hold copies, /mn/v1 and /mn/v2. Bare ASGI: an identifier is one
segment, whatever it holds."""

import re
from urllib.parse import parse_qsl

from litestar.types import HTTPScope, Receive, Send
from msgspec.structs import replace

from skep.base.clock import Clock
from skep.dataone.encoding import LARGEST, read_form, render
from skep.dataone.node_api import HEAD_CALLS, Answer, Call, Calls, Handler, Reading
from skep.dataone.node_errors import NotOffered
from skep.dataone.service import DataOne
from skep.dataone.types import Doc
from skep.interfaces.http.decoding import aside
from skep.topics.messages_http import read_body

_XML = "text/xml"
#: methods whose requests have bodies
_SENDING = ("POST", "PUT")
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
        raw = scope["raw_path"].split(b"?")[0].decode("latin-1")
        version, word, *rest = [*raw.removeprefix(self._path).split("/"), ""]
        if version not in ("v1", "v2"):
            raise NotOffered(f"there is no version {version[:20]!r} here")
        handler = self._handler(scope["method"], word)
        if handler is None:
            raise NotOffered(f"{scope['method']} {scope['path'][:200]} is not offered here")
        call = Call(
            self._dataone,
            self._here,
            scope["user"],
            int(version[1:]),
            tuple(part for part in rest if part),
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True),
            {},
            self._clock.now(),
        )
        if scope["method"] in _SENDING:
            call = await _received(call, word, scope, receive)
        await _send(await handler(call), call.version, send)

    def _handler(self, method: str, word: str) -> Handler | None:
        if method == "HEAD":
            return HEAD_CALLS.get(("GET", word)) or self._calls.get(("GET", word))
        return self._calls.get(("GET" if _is_query(method, word) else method, word))


def _is_query(method: str, word: str) -> bool:
    """A query may be too long for an address."""
    return (method, word) == ("POST", "query")


async def _received(call: Call, word: str, scope: HTTPScope, receive: Receive) -> Call:
    """With its body, which is read only if the caller may send one."""
    is_query = _is_query(scope["method"], word)
    if is_query:
        call.caller.need("read")
    else:
        call.known()
    body = await read_body(receive, LARGEST)
    if not body:
        return call
    media = next((value for name, value in scope["headers"] if name == b"content-type"), b"").decode("latin-1")
    if is_query:
        return replace(call, query=[*call.query, *await aside(len(body), _form_query, media, body)])
    return replace(call, form=await aside(len(body), read_form, media, body))


def _form_query(media: str, body: bytes) -> list[tuple[str, str]]:
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
