"""For use inside a task that Skep runs: who it is, and what it shares with the other tasks of its context.

    from skep import task

    task.checkpoint("address").set(f"{host}:{port}")
    task.latch("ready").wait(timeout=60)
    task.record("time", 1.25, "s")
    task.result({"seconds": 1.25})

Only the standard library, and quick to import. Other languages use the HTTP API below it: docs/tasks.md.
"""

import base64
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from skep.base.errors import SkepError

id = os.environ.get("SKEP_TASK", "")
attempt = int(os.environ.get("SKEP_ATTEMPT", "0"))
context = os.environ.get("SKEP_CONTEXT", "")
#: of this task, with those of its context
properties: dict[str, str] = json.loads(os.environ.get("SKEP_PROPERTIES", "{}"))

_ONE_WAIT = 30.0


class Checkpoint:
    """A value that is set once. Waiting before or after it is set is the same."""

    def __init__(self, name: str) -> None:
        self._path = f"/checkpoints/{_quoted(name)}"

    def set(self, value: Any = None) -> None:
        _ask("PUT", self._path, {"value": value})

    def get(self) -> Any:
        """None while it is not set."""
        return _ask("GET", self._path)["value"]

    def wait(self, timeout: float | None = None) -> Any:
        """Its value; TimeoutError."""
        return _wait(self._path, timeout, lambda answer: answer["set"])["value"]


class Latch:
    """A count that goes down. Waiting before it is set is waiting for it to be set and to come down."""

    def __init__(self, name: str) -> None:
        self._path = f"/latches/{_quoted(name)}"

    def set(self, count: int) -> None:
        _ask("PUT", self._path, {"count": count})

    def down(self) -> int:
        """The count after it."""
        return int(_ask("POST", self._path + "/down")["count"])

    def count(self) -> int | None:
        """None while it is not set."""
        count: int | None = _ask("GET", self._path)["count"]
        return count

    def wait(self, timeout: float | None = None) -> None:
        """Until it is at 0; TimeoutError."""
        _wait(self._path, timeout, lambda answer: answer["count"] == 0)


class State:
    """Keys and values of the context; the last one who sets a key wins."""

    def __getitem__(self, key: str) -> Any:
        answer = _ask("GET", f"/state/{_quoted(key)}")
        if not answer["set"]:
            raise KeyError(key)
        return answer["value"]

    def __setitem__(self, key: str, value: Any) -> None:
        _ask("PUT", f"/state/{_quoted(key)}", {"value": value})

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


checkpoint = Checkpoint
latch = Latch
state = State()


def add(what: str | Sequence[str], **more: Any) -> str:
    """Add a task to the own context: a kind, or a command as a list. Returns its id."""
    body = {"kind": what} if isinstance(what, str) else {"argv": list(what)}
    return str(_ask("POST", "/tasks", body | more)["id"])


def result(value: Any) -> None:
    _ask("PUT", "/result", {"value": value})


def record(
    metric: str,
    value: float | None = None,
    unit: str = "",
    *,
    values: Sequence[float] = (),
    group: str = "",
    kind: str = "measure",
    tags: dict[str, str] | None = None,
) -> None:
    """A measurement; of several `values` the median is its value. It is kept when this returns."""
    body = {"metric": metric, "unit": unit, "values": list(values), "group": group, "kind": kind, "tags": tags or {}}
    _ask("POST", "/results", body | ({} if value is None else {"value": value}))


def evaluation(name: str, body: bytes, mime: str) -> None:
    """A file that was made of results, to be looked at: a picture, a page, a table. A repeat takes its place."""
    _ask("PUT", f"/evaluations/{_quoted(name)}", {"mime": mime, "body": base64.b64encode(body).decode()})


def log(text: str, level: str = "info") -> None:
    _ask("POST", "/log", {"text": text, "level": level})


def _wait(path: str, timeout: float | None, there: Any) -> Any:
    until = float("inf") if timeout is None else time.monotonic() + timeout
    while True:
        left = max(0.0, until - time.monotonic())
        answer = _ask("GET", f"{path}?wait={min(left, _ONE_WAIT):.3f}")
        if there(answer):
            return answer
        if time.monotonic() >= until:
            raise TimeoutError(f"{path} was not reached within {timeout} s")


def _ask(method: str, path: str, body: Any = None) -> Any:
    import urllib.error
    import urllib.request

    base, token = os.environ.get("SKEP_API"), os.environ.get("SKEP_TOKEN")
    if not base or not token:
        raise SkepError("this process is not a task of Skep", hint="SKEP_API and SKEP_TOKEN are set for tasks")
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(base + path, data, {"Authorization": f"Bearer {token}"}, method=method)  # noqa: S310
    # a proxy from the task's environment has no business here
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=_ONE_WAIT * 2) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(json.load(error)["error"]) from None


def _refused(error: dict[str, Any]) -> SkepError:
    ahead, kind = [SkepError], SkepError
    while ahead:
        each = ahead.pop()
        ahead += each.__subclasses__()
        kind = each if each.code == error["code"] else kind
    return kind(error["message"], hint=error["hint"])


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
