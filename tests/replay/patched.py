"""Starts `skep` with four changed behaviours, each of one path: the replay has to notice all of them."""

import runpy
from typing import Any

from uvicorn.protocols.http import httptools_impl

_sent = httptools_impl.RequestResponseCycle.send


def _field(path: str, message: Any) -> None:
    if path == "/api/v1/rules" and message["type"] == "http.response.body":
        message["body"] = message["body"].replace(b'"enabled"', b'"isenabl"')


def _status(path: str, message: Any) -> None:
    if path == "/api/v1/tokens" and message["type"] == "http.response.start" and message["status"] == 201:
        message["status"] = 200


def _order(path: str, message: Any) -> None:
    if path == "/api/v1/topics" and message["type"] == "http.response.body":
        message["body"] = message["body"].replace(b'"skep.changes"', b'"?"').replace(
            b'"skep.failures"', b'"skep.changes"').replace(b'"?"', b'"skep.failures"')  # fmt: skip


def _header(path: str, message: Any) -> None:
    if path == "/healthz" and message["type"] == "http.response.start":
        message["headers"] = [one for one in message["headers"] if one[0] != b"x-frame-options"]


async def _send(self: Any, message: Any) -> None:
    for change in (_field, _status, _order, _header):
        change(self.scope["path"], message)
    await _sent(self, message)


if __name__ == "__main__":
    httptools_impl.RequestResponseCycle.send = _send  # type: ignore[method-assign]
    runpy.run_module("skep", run_name="__main__", alter_sys=True)
