"""Requests whose body is watched: whether it is read at all, and how much of it."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from .conftest import Door


class Body:
    """Gives the chunks and counts them; after the last, `ends` decides whether the body is complete or never ends."""

    def __init__(self, chunks: Iterable[bytes] = (), *, ends: bool = True) -> None:
        self._chunks = iter(chunks)
        self._ends = ends
        self.reads = 0

    async def receive(self) -> dict[str, Any]:
        self.reads += 1
        chunk = next(self._chunks, None)
        if chunk is None and not self._ends:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None or not self._ends}


class Answered(msgspec.Struct):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def code(self) -> str:
        """Of an error."""
        return str(msgspec.json.decode(self.body)["error"]["code"])


async def send_request(door: Door, method: str, path: str, body: Body, token: str = "", **headers: str) -> Answered:
    """`path` as it is written, with its percent signs."""
    fields = {"host": "127.0.0.1:7337", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if token:
        fields["authorization"] = f"Bearer {token}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7337),
        "state": {},
        "extensions": {},
    }
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await door.app(scope, body.receive, send)
    text = b"".join(one["body"] for one in sent[1:])
    return Answered(sent[0]["status"], dict(sent[0]["headers"]), text)
