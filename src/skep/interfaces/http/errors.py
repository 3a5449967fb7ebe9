"""One error shape: JSON for programs, plain text for git (it shows that to its user), a page for people."""

import logging
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import Scope, Send

from skep.base.answers import ErrorAnswer, ErrorBody
from skep.base.errors import SkepError
from skep.dataone import node_errors as cn
from skep.interfaces.http.asgi import respond
from skep.interfaces.web.render import error_page

log = logging.getLogger("skep.http")

#: the topic queue of old: its own shape of answers, and 400 for whatever is wrong with a request
QUEUE_PATHS = frozenset(
    ("/topics", "/producer/register", "/producer/produce", "/consumer/register", "/consumer/consume", "/size")
)
_CODES = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 415: "unsupported_media_type"}


class Trouble(msgspec.Struct, frozen=True):
    """An error on its way out."""

    status: int
    body: ErrorBody
    headers: Mapping[str, str] = {}


def trouble(error: Exception, scope: Scope) -> Trouble:
    found = _trouble(error, scope)
    if scope.get("path", "").startswith(cn.PATHS):
        typed = cn.explain(found.body, anonymous=_anonymous(scope))
        return Trouble(typed.error_code, found.body, {**found.headers, **cn.headers(typed)})
    if found.status in (404, 409) and _is_queue(scope):
        return Trouble(400, found.body, found.headers)
    return found


def _trouble(error: Exception, scope: Scope) -> Trouble:
    path = scope.get("path", "")
    if isinstance(error, SkepError):
        ask = {"www-authenticate": _challenge(path)} if error.status == 401 else {}
        return Trouble(error.status, ErrorBody(error.code, error.message, error.hint, error.column), ask)
    if isinstance(error, ValidationException):
        return Trouble(400, ErrorBody("bad_input", _fields(error), "/docs lists every operation and its fields"))
    if isinstance(error, HTTPException) and error.status_code < 500:
        return Trouble(error.status_code, _refusal(error, scope), dict(error.headers or {}))
    name = secrets.token_hex(4)
    log.error("internal error %s at %s %s", name, scope.get("method"), path, exc_info=error)
    return Trouble(500, ErrorBody("internal", "internal error", f"the server's log tells more under {name}"))


def _challenge(path: str) -> str:
    return 'Basic realm="skep: the password is a token"' if path.startswith("/git/") else "Bearer"


def _refusal(error: HTTPException, scope: Scope) -> ErrorBody:
    if error.status_code == 404:
        return ErrorBody("not_found", f"there is nothing at {scope.get('path', '')}", "/docs lists every operation")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("allow", "")
        return ErrorBody("method_not_allowed", f"{scope.get('method')} is not possible here", f"allowed: {allowed}")
    return ErrorBody(_CODES.get(error.status_code, "bad_input"), error.detail)


def _fields(error: ValidationException) -> str:
    """`limit: Expected `int` >= 1`, for each field that is wrong."""
    extra = error.extra if isinstance(error.extra, list) else []
    named = [f"{item.get('key')}: {item.get('message')}" for item in extra if isinstance(item, dict)]
    return "; ".join(named) or error.detail


def wants_page(scope: Scope) -> bool:
    """Pages answer people with pages; everything else answers programs."""
    if scope.get("path", "").startswith(("/api/", "/git/", "/static/", "/healthz", "/readyz", "/metrics")):
        return False
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    return b"text/html" in accept


def _anonymous(scope: Scope) -> bool:
    return all(name != b"authorization" for name, _ in scope["headers"])


def _is_queue(scope: Scope) -> bool:
    return scope.get("path", "") in QUEUE_PATHS and not wants_page(scope)


def encode(found: Trouble, scope: Scope) -> tuple[str, bytes]:
    """Media type (Litestar adds the charset to text) and body."""
    if scope.get("path", "").startswith("/git/"):
        text = f"{found.body.message}\n{found.body.hint}".strip() + "\n"
        return "text/plain", text.encode("utf-8", "replace")
    if scope.get("path", "").startswith(cn.PATHS):
        return "text/xml", cn.document(cn.explain(found.body, anonymous=_anonymous(scope)))
    if wants_page(scope):
        return "text/html", error_page(scope, found.status, found.body)
    return "application/json", _json(found.body, old=_is_queue(scope))


def _json(body: ErrorBody, *, old: bool) -> bytes:
    try:
        return msgspec.json.encode({"status": "Failure", "message": body.message} if old else ErrorAnswer(body))
    except UnicodeEncodeError:  # a name from the request that is no UTF-8
        message = body.message.encode("ascii", "backslashreplace").decode()
        return _json(ErrorBody(body.code, message, body.hint, body.column), old=old)


async def send_error(error: Exception, scope: Scope, send: Send) -> None:
    found = trouble(error, scope)
    media, body = encode(found, scope)
    media += "; charset=utf-8" if media.startswith("text/") else ""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in found.headers.items()]
    await respond(send, found.status, body, media, headers)


def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's way to the same answer."""
    found = trouble(error, request.scope)
    media, body = encode(found, request.scope)
    return Response(body, status_code=found.status, media_type=media, headers=dict(found.headers))
