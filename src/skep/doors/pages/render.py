"""Templates into answers. Everything is escaped; style and script come from our own static files only."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Request, Response
from litestar.types import Scope

import skep
from skep.clock import SystemClock
from skep.dataone.pids import encode
from skep.doors.pages import show, static
from skep.model.answers import ErrorBody
from skep.model.caller import Caller
from skep.model.excerpt import excerpts
from skep.search.completion import narrowed


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    env.filters |= {"when": show.when, "size": show.size, "url": show.url_path, "duration": show.duration}
    env.filters |= {
        "parts": show.parts,
        "steps": show.steps,
        "entry": show.entry,
        "version": show.version,
        "rows": show.rows,
        "pieces": show.pieces,
        "excerpts": excerpts,
        "query": show.query,
        "segment": encode,
        "narrowed": narrowed,
    }
    env.globals |= {"asset": static.url, "ago": show.ago, "count": show.count, "version": skep.__version__}
    return env


def page(request: Request[Caller, Any, Any], template: str, status: int = 200, **values: object) -> Response[bytes]:
    now = request.app.state.clock.now()
    body = _render(template, request.scope, request.user, now, values)
    return Response(body, status_code=status, media_type=MediaType.HTML)


def error_page(scope: Scope, status: int, error: ErrorBody) -> bytes:
    caller = scope.get("user") or Caller("nobody", frozenset(), known=False)
    return _render("error.html", scope, caller, SystemClock().now(), {"status": status, "error": error})


def _render(template: str, scope: Scope, caller: Caller, now: float, values: dict[str, object]) -> bytes:
    shared = {"caller": caller, "here": scope.get("path", ""), "now": now, "q": ""}
    text = _environment().get_template(template).render({**shared, **values})
    return text.encode("utf-8", "replace")
