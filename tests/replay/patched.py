"""Starts `skep` with the one changed behaviour that REPLAY_PLANT names: what the replay has to notice."""

import os
import runpy
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http import httptools_impl

_sent = httptools_impl.RequestResponseCycle.send


def _answering(change: Callable[[str, Any], None]) -> None:
    """Every message of an answer passes `change`, with the path of the request."""

    async def send(self: Any, message: Any) -> None:
        change(self.scope["path"], message)
        await _sent(self, message)

    httptools_impl.RequestResponseCycle.send = send  # type: ignore[method-assign]


def _field(path: str, message: Any) -> None:
    if path == "/api/v1/rules" and message["type"] == "http.response.body":
        message["body"] = message["body"].replace(b'"enabled"', b'"isenabl"')


def _status(path: str, message: Any) -> None:
    if message["type"] == "http.response.start" and message["status"] == 409:
        message["status"] = 400


def _order(path: str, message: Any) -> None:
    if path == "/api/v1/topics" and message["type"] == "http.response.body":
        message["body"] = message["body"].replace(b'"skep.changes"', b'"?"').replace(
            b'"skep.failures"', b'"skep.changes"').replace(b'"?"', b'"skep.failures"')  # fmt: skip


def _header(path: str, message: Any) -> None:
    if message["type"] == "http.response.start":
        message["headers"] = [one for one in message["headers"] if one[0] != b"x-frame-options"]


PLANTS: dict[str, Callable[[str, Any], None]] = {"field": _field, "status": _status, "order": _order, "header": _header}

if __name__ == "__main__":
    _answering(PLANTS[os.environ["REPLAY_PLANT"]])
    runpy.run_module("skep", run_name="__main__", alter_sys=True)
