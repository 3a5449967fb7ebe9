"""Pages: every route with its fields, the template that it renders, and the labels that a person sees on it."""

import html.parser
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import jinja2
import msgspec

from skep.interfaces.web import site

from ..lines import line, quoted
from ..scene import Scene
from .types import name_of, struct_lines

_LABELS = ("title", "h1", "h2", "h3", "h4", "th", "dt", "label", "legend", "button", "summary", "option", "caption")
_FIELDS = ("input", "select", "textarea", "button", "form")
_SHOWN = ("name", "type", "method", "action", "placeholder", "aria-label", "required")
#: shown only of a worker that was not heard for a while, as on a machine that stood still
_SOMETIMES = ("downs",)
_VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
#: parameters of a handler that are not the request's
_GIVEN = ("request", "core", "settings", "caller", "scope", "state")


class Reader(html.parser.HTMLParser):
    """Labels, fields of forms, links of the navigation."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _FIELDS:
            shown = [f"{name}={value}" for name, value in attrs if name in _SHOWN]
            self.found.append((tag, " ".join(shown)))
        if tag in _LABELS or (tag == "a" and "nav" in self._open):
            self._words = ""
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        self._words += data

    def handle_endtag(self, tag: str) -> None:
        if tag in _LABELS or (tag == "a" and "nav" in self._open):
            self.found.append((f"text of {tag}", " ".join(self._words.split())))
        while self._open and self._open.pop() != tag:
            pass


def routes() -> Iterator[tuple[str, str, Any]]:
    """Method, path and handler of every page."""
    for route in site.PAGES.routes:
        for handler in route.route_handlers:  # type: ignore[union-attr]
            for method in sorted(handler.http_methods):
                if method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
                    yield method, _VARIABLE.sub(r"{\1}", route.path), handler


def record() -> Iterator[str]:
    for method, path, handler in routes():
        where = f"{method} {path}"
        yield line(where, "route", "yes")
        for one in inspect.signature(handler.fn).parameters.values():
            if one.name not in _GIVEN:
                default = "" if one.default is one.empty else f" = {one.default!r}"
                yield line(where, "takes", one.name, f"{name_of(one.annotation)}{default}")
                yield from _form(where, one.annotation)


def _form(where: str, annotation: Any) -> Iterator[str]:
    for one in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            yield from struct_lines(one, where, "form", one.__name__)


@contextmanager
def watched_templates() -> Iterator[list[str]]:
    """The names of templates that are rendered inside the block."""
    names: list[str] = []
    before = jinja2.Environment.get_template

    def get_template(self: Any, name: Any, *args: Any, **more: Any) -> Any:
        names.append(str(name))
        return before(self, name, *args, **more)

    jinja2.Environment.get_template = get_template  # type: ignore[method-assign]
    try:
        yield names
    finally:
        jinja2.Environment.get_template = before  # type: ignore[method-assign]


async def shown(scene: Scene) -> AsyncIterator[str]:
    """Each page that can be opened, on the data of the scene; and the same without a token."""
    for who, token in (("admin", scene.admin), ("anonymous", "")):
        async with scene.http(token, accept="text/html") as client:
            for path, real in sorted(addresses(scene).items()):
                with watched_templates() as names:
                    answer = await client.get(real)
                where = f"GET {path}", who
                media = answer.headers.get("content-type", "")
                yield line(*where, "answers", f"{answer.status_code} {media}")
                for name in names:
                    yield line(*where, "template", name, "yes")
                if media.startswith("text/html"):
                    for what, text in Reader(answer.text).found:
                        if text not in _SOMETIMES:
                            yield line(*where, what, quoted(scene.rounded(text)))


def addresses(scene: Scene) -> dict[str, str]:
    """A real address for each route that can be opened; and for some more than one."""
    names = scene.names
    source = f"/sources/{names['source']}"
    commit = scene.garden.refs()["refs/heads/main"]
    real = {
        "/": "/",
        "/ (results)": "/?q=honey",
        "/ (wrong query)": "/?q=(",
        "/ (records)": "/?q=type:record+glaciers",
        "/sources/{id}": source,
        "/sources/{id}/tree": f"{source}/tree",
        "/sources/{id}/tree/{path}": f"{source}/tree/src",
        "/sources/{id}/commit/{commit}": f"{source}/commit/{commit}",
        "/sources/{id}/file/{path}": f"{source}/file/src/hive.py",
        "/sources/{id}/report": f"{source}/report",
        "/sources/{id} (private)": f"/sources/{names['shed_id']}",
        "/sources/{id} (unknown)": "/sources/src_none",
        "/lists/{id}": f"/lists/{names['list']}",
        "/contexts/{id}": f"/contexts/{names['failed']}",
        "/tasks/{id}": f"/tasks/{names['task']}",
        "/tasks/{id}/output": f"/tasks/{names['task']}/output",
        "/topics/{name}": "/topics/news",
        "/topics": "/topics",
        "/benchmarks/{name}": "/benchmarks/speed",
        "/benchmarks/{name}/{file}": "/benchmarks/speed/series.svg",
        "/evaluations/{id}": f"/evaluations/{names['evaluation']}",
        "/record": "/record?id=golden-1",
        "/sources/{id} (node)": f"/sources/{names['node']}",
        "/static/{name}": "/static/style.css",
    }
    for method, path, _ in routes():
        if method == "GET":
            assert "{" not in path or path in real, f"{path} is not opened"
            real.setdefault(path, path)
    return real
