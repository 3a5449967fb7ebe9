"""Errors: code, status, exit code of a command, and the form in which each interface answers with them."""

import logging
import re
from collections.abc import AsyncIterator, Iterator

from skep.base.errors import SkepError, class_of
from skep.interfaces import terminal
from skep.interfaces.http.errors import encode, trouble

from ..lines import line, quoted
from ..scene import Scene
from .types import modules, signature_of

_FORMS = {"api": "/api/v1/sources", "page": "/sources", "git": "/git/a", "node": "/cn/v2/object/a", "queue": "/topics"}
_JSON = {"content-type": "application/json"}


def kinds() -> list[type[SkepError]]:
    """Every class of error in the product."""
    for _ in modules():
        pass

    def below(kind: type[SkepError]) -> Iterator[type[SkepError]]:
        yield kind
        for one in kind.__subclasses__():
            yield from below(one)

    found = {one for one in below(SkepError) if one.__module__.startswith("skep.") and ".testing" not in one.__module__}
    return sorted(found, key=lambda one: (one.__name__, one.__module__))


def record() -> Iterator[str]:
    for kind in kinds():
        where = "error", kind.__name__
        yield line(*where, "parents", " ".join(one.__name__ for one in kind.__mro__[1:] if issubclass(one, SkepError)))
        yield line(*where, "code", kind.code)
        yield line(*where, "status", str(kind.status))
        yield line(*where, "made by", signature_of(kind.__init__))
        yield line(*where, "class of its code", class_of(kind.code).__name__)
        error = kind.__new__(kind)
        SkepError.__init__(error, "what failed", hint="what to do", column=3)
        yield line(*where, "exit code", str(terminal.code_of(error)))
        for form, path in _FORMS.items():
            yield line(*where, form, _answer(error, form, path))
    for code, meaning in terminal.MEANING.items():
        yield line("exit code", str(code), quoted(meaning))
    logging.disable(logging.CRITICAL)
    try:
        yield line("error", "not a SkepError", "api", _answer(RuntimeError("oops"), "api", _FORMS["api"]))
    finally:
        logging.disable(logging.NOTSET)


def _answer(error: Exception, form: str, path: str) -> str:
    accept = [(b"accept", b"text/html")] if form == "page" else []
    scope = {"type": "http", "path": path, "method": "GET", "headers": accept, "query_string": b""}
    found = trouble(error, scope)  # type: ignore[arg-type]
    media, body = encode(found, scope)  # type: ignore[arg-type]
    text = "" if form == "page" else body.decode()
    if found.body.code == "internal":
        text = text.replace(found.body.hint.rpartition(" ")[2], "NAME")
    headers = " ".join(f"{name}={value}" for name, value in sorted(found.headers.items()))
    return f"{found.status} {media} {quoted(text)} {quoted(headers)}"


_ASKED: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("GET", "/api/v1/nothing", {}, b""),
    ("DELETE", "/api/v1/status", {}, b""),
    ("GET", "/api/v1/sources?limit=0", {}, b""),
    ("GET", "/api/v1/sources/src_none", {}, b""),
    ("POST", "/api/v1/topics", _JSON, b"{"),
    ("POST", "/api/v1/topics", _JSON, b'{"name": "news"}'),
    ("POST", "/api/v1/topics", _JSON, b'{"name": "\xff"}'),
    ("POST", "/api/v1/sources", _JSON, b'{"url": "nonsense"}'),
    ("POST", "/api/v1/tokens", _JSON, b" " * 1_000_001),
    ("POST", "/api/v1/contexts", {"content-type": "text/plain"}, b"x"),
    ("GET", "/api/v1/search?q=(", {}, b""),
    ("GET", "/api/v1/topics/none/messages", {}, b""),
    ("GET", "/sources/src_none", {"accept": "text/html"}, b""),
    ("GET", "/git/none/info/refs?service=git-upload-pack", {}, b""),
    ("GET", "/cn/v2/object/none", {}, b""),
    ("GET", "/size?topic=none&consumer_id=0", {}, b""),
    ("GET", "/static/none.css", {}, b""),
)


def _sorted(text: str) -> str:
    """Methods that are allowed come in any order."""
    return re.sub(r"(?<=allowed: )[A-Z, ]+", lambda found: ", ".join(sorted(found[0].split(", "))), text)


async def answers(scene: Scene) -> AsyncIterator[str]:
    """What a server really answers to wrong requests."""
    for who, token in (("admin", scene.admin), ("reader", scene.reader), ("anonymous", "")):
        async with scene.http(token) as client:
            for method, path, headers, body in _ASKED:
                answer = await client.request(method, path, headers=headers, content=body or None)
                media = answer.headers.get("content-type", "")
                text = _sorted(scene.plain(answer.text)) if "html" not in media else ""
                given = quoted(body[:40].decode(errors="replace"))
                yield line("answer", f"{method} {path}", given, who, f"{answer.status_code} {media} {quoted(text)}")
    async with scene.http("") as client:
        for what, more in (
            ("foreign host", {"host": "evil.example"}),
            ("unknown token", {"authorization": "Bearer wrong"}),
        ):
            answer = await client.get("/api/v1/status", headers=more)
            yield line("answer", what, f"{answer.status_code} {quoted(scene.plain(answer.text))}")
