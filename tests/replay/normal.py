"""What two answers to the same request may differ in, one named rule each. Everything else has to be equal.

Ids, tokens and leases become names by the order in which a server first shows them: what refers to what still counts.
"""

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

#: rule -> why two servers of the same version differ in it
RULES = {
    "id": "a server makes ids from the time and random bits; named by first appearance, as <src:1>",
    "token": "tokens, tickets and leases are random; named by first appearance",
    "time": "seconds since 1970, ISO and HTTP dates of today; the fixed dates of the upstream are compared as they are",
    "ago": "pages write times of today as `12 s ago` or in words",
    "duration": "how long something took, by the names of the fields",
    "server": "each server has a port of its own, which is in URLs and in the name of its cookie",
    "asset": "the mark of a static file changes with its content, which is compared when it is fetched",
    "page": "the token of a next page holds ids and times; whether there is one is compared",
    "sample": "load, memory and disk of this machine, by the names of the facts; what a process did at its heartbeat",
    "folder": "each server has a data folder of its own, and its own Python",
    "fault": "an internal error is named at random in the answer and the log",
    "order": "changes of one batch, and tokens, are listed by a random digest; sorted by what they say",
    "bytes": "the size of a partition of a topic counts the digits of times",
    "methods": "the methods that a route allows are a set: sorted",
    "metric": "values of metrics are counts of what this machine did; names and labels are compared",
    "colour": "a file has no colours when the machine is too busy to paint it in time; its text is compared",
    "date": "the header `date`, and headers of the connection",
    "manifest": "a manifest and its ETag hold times of fetches; the names in it are compared",
}
_ID = re.compile(r"(?<![a-z0-9_])([a-z]{3})_(?:[0-9A-HJKMNP-TV-Z]{26}|[a-z2-7]{32})\b")
_TOKEN = re.compile(r"\bskepm?_[a-z2-7]{50,60}\b|\bskepj\w*_[\w-]{40,}")
_RANDOM = re.compile(r"chg_\w+|[0-9a-f]{16}")
_METHODS = re.compile(r"\b(?:GET|HEAD|OPTIONS|POST|PUT|PATCH|DELETE)(?:, (?:GET|HEAD|OPTIONS|POST|PUT|PATCH|DELETE))+")
_GAUGE = re.compile(
    r"(<dt>(?:memory|disk|processor|load|processes|network_in|network_out)</dt><dd[^>]*>)(?:<meter[^>]*></meter>)?[^<]*"
)
_COLOUR = re.compile(r'<span class="[a-z]{1,3}">([^<]*)</span>')
_METRIC = re.compile(r"^(skep_\w+(?:\{[^}]*\})?) \S+$", re.MULTILINE)
_QTIME = re.compile(r'(name="QTime">)\d+')
_DOING = re.compile(
    r"\bidle(?:, last task: [^\"<\n]*)?|\bWorking on: [^\"<\n]*"
    r"|\b(?:fetching|indexing|index|running) (?:src_|tsk_|http)[^\"<\n]*"
)
_ISO = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?")
_AGO = re.compile(
    r"\b(?:in )?\d+(?:\.\d+)? (?:ms|s|min|h|d|seconds?|minutes?|hours?|days?)(?: ago)?\b|\bjust now\b|\bnow\b"
)
_HTTP = re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d GMT")
_SECONDS = re.compile(r"\b1[789]\d{8}(?:\.\d+)?\b")
_ASSET = re.compile(r"(/static/[\w.-]+\?v=)[0-9a-f]{12}")
_FAULT = re.compile(r"(tells more under )[0-9a-f]{8}")
#: fields of JSON that hold a duration
_DURATIONS = {"took", "seconds", "QTime"}
_SAMPLES = {"memory_used", "memory_free", "disk", "disk_free", "load", "cpu_percent", "sampled_at", "network_in"} | {
    *("network_out", "boot", "pid", "ended", "processes"),
}
_SIZES = {"bytes"}
_TODAY = 86_400.0 * 2
_PAGES = {"next_page"}
_LEASES = {"ticket", "member", "token", "join"}
_HEADERS = {"date", "connection", "keep-alive", "server", "transfer-encoding", "content-length"}


class AnswerNormalizer:
    """Of one server: what it made, in the order in which it was shown first."""

    def __init__(self, url: str, folder: str, python: str) -> None:
        self._url, self._folder, self._python = url, folder, python
        self._port = url.rpartition(":")[2]
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def name(self, kind: str, value: str) -> str:
        if value not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[value] = f"<{kind}:{self._counts[kind]}>"
        return self._names[value]

    def text(self, text: str, page: bool = False) -> str:
        """Any text: of a body that is not JSON, of a field, of a header."""
        text = text.replace(self._url, "<server>").replace(f"skep_{self._port}", "<cookie>")
        text = text.replace(f"127.0.0.1:{self._port}", "<host>").replace(self._folder, "<folder>")
        text = text.replace(self._python, "<python>")
        text = _DOING.sub("<doing>", text)
        text = _TOKEN.sub(lambda found: self.name("token", found[0]), text)
        text = _ID.sub(lambda found: self.name(found[1], found[0]), text)
        text = _ASSET.sub(r"\1<asset>", _FAULT.sub(r"\1<fault>", text))
        text = _QTIME.sub(r"\1<duration>", text)
        text = _GAUGE.sub(r"\1<sample>", text)
        text = _METRIC.sub(r"\1 <value>", text)
        text = _METHODS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
        text = _ISO.sub(_today(_iso), text)
        text = _HTTP.sub(_today(lambda one: parsedate_to_datetime(one).timestamp()), text)
        text = _SECONDS.sub(_today(float), text)
        return _AGO.sub("<ago>", _COLOUR.sub(r"\1", _ordered_lines(text))) if page else text

    def json(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                sized = _SIZES if "partition" in value else set()
                return {
                    self.text(name): f"<{name}>" if name in sized else self.json(one, name)
                    for name, one in value.items()
                }
            case list():
                return [self.json(one, key) for one in _ordered(value)]
            case str():
                return self._named(value, key)
            case float() | int() if not isinstance(value, bool):
                return self._number(value, key)
        return value

    def _named(self, value: str, key: str) -> str:
        if key in _PAGES:
            return "<page>" if value else ""
        if value and key in _LEASES and not _ID.fullmatch(value) and len(value) > 12:
            return self.name("token", value)
        if re.fullmatch("[0-9a-f]{16}", value):
            return self.name("hash", value)
        return self.text(value)

    def _number(self, value: float, key: str) -> Any:
        if key in _SAMPLES | _DURATIONS:
            return f"<{key}>" if value else value
        return "<time>" if abs(value - time.time()) < _TODAY else value

    def headers(self, headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
        found = {name: self.text(value) for name, value in headers if name not in _HEADERS}
        if "etag" in found and "last-modified" in found:
            found["etag"] = "<manifest>"
        return found


def _ordered(items: list[Any]) -> list[Any]:
    """Changes and tokens in the order of what they say; any other list as it is."""
    if not items or not all(isinstance(one, dict) and _RANDOM.fullmatch(str(one.get("id"))) for one in items):
        return items
    if "offset" in items[0]:  # messages have an order
        return items
    return sorted(items, key=lambda one: _ID.sub(r"\1", json.dumps({**one, "id": ""})))


def _ordered_lines(page: str) -> str:
    """The same for the list of changes on a page."""
    lines = page.split("\n")
    marked = [n for n, line in enumerate(lines) if '<li><span class="entry"' in line]
    for n, line in zip(marked, sorted(lines[n] for n in marked), strict=True):
        lines[n] = line
    return "\n".join(lines)


def _iso(text: str) -> float:
    return datetime.fromisoformat(text.replace(" UTC", "").replace("Z", "") + "+00:00").timestamp()


def _today(seconds: Callable[[str], float]) -> Callable[[re.Match[str]], str]:
    def replaced(found: re.Match[str]) -> str:
        try:
            near = abs(seconds(found[0].removesuffix("+00:00")) - time.time()) < _TODAY
        except ValueError:
            return found[0]
        return "<time>" if near else found[0]

    return replaced
