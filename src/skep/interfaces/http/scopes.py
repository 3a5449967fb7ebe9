"""The scope that each route needs, checked before its body is read.

What a caller sends costs memory and time, so a caller who may not use a route must not be able to send it a body. The
handlers check again, more exactly: here is the lowest scope that a route can need. Routes past Litestar check for
themselves before they read: see publish.py, git.py and cn/door.py.
"""

from collections.abc import Mapping
from typing import Any, Literal

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from skep.base.caller import Caller, Scope
from skep.base.errors import NeedsToken

#: known: any token; None: nothing, because the route proves its callers in another way or has nothing to protect
Needed = Scope | Literal["known"] | None
Table = Mapping[tuple[str, str], Needed]

_SAFE = {"GET", "HEAD", "OPTIONS"}
_OPEN = """
POST /hooks/{forge}
POST /login
POST /logout
"""
_KNOWN = """
POST /api/v1/login-ticket
"""
_READ = """
POST /api/v1/spaces/{space}/query
POST /api/v1/spaces/{space}/query_all
POST /api/v1/topics/{topic}/groups/{group}/commit
POST /api/v1/topics/{topic}/groups/{group}/join
POST /api/v1/topics/{topic}/groups/{group}/leave
POST /consumer/register
"""
_WRITE = """
POST /api/v1/benchmarks
DELETE /api/v1/benchmarks/{name}
POST /api/v1/benchmarks/{name}/pause
POST /api/v1/benchmarks/{name}/resume
POST /api/v1/benchmarks/{name}/wants
POST /api/v1/contexts
DELETE /api/v1/contexts/{id}
POST /api/v1/contexts/{id}/cancel
POST /api/v1/contexts/{id}/retry
POST /api/v1/contexts/{id}/tasks
DELETE /api/v1/evaluations/{id}
POST /api/v1/fetch
POST /api/v1/lists
DELETE /api/v1/lists/{id}
POST /api/v1/lists/{id}/confirm
POST /api/v1/lists/{id}/read
POST /api/v1/packages
DELETE /api/v1/packages/{group}/{name}/{version}
POST /api/v1/packages/{group}/{name}/{version}/run
POST /api/v1/results
POST /api/v1/rules
DELETE /api/v1/rules/{name}
PATCH /api/v1/rules/{name}
POST /api/v1/rules/{name}/fire
DELETE /api/v1/searches/{name}
PUT /api/v1/searches/{name}
POST /api/v1/sources
POST /api/v1/sources/bulk
DELETE /api/v1/sources/{id}
PATCH /api/v1/sources/{id}
POST /api/v1/sources/{id}/accept
POST /api/v1/sources/{id}/fetch
POST /api/v1/sources/{id}/reindex
DELETE /api/v1/spaces/{space}
POST /api/v1/spaces/{space}/acknowledge
POST /api/v1/spaces/{space}/get
POST /api/v1/spaces/{space}/get_all
POST /api/v1/spaces/{space}/give_back
POST /api/v1/spaces/{space}/keep
POST /api/v1/spaces/{space}/put
POST /api/v1/spaces/{space}/replace
POST /api/v1/tasks
POST /api/v1/tasks/{id}/cancel
POST /api/v1/topics
PATCH /api/v1/topics/{topic}
POST /api/v1/topics/{topic}/groups/{group}/seek
POST /api/v1/topics/{topic}/trim
POST /benchmarks/{name}/{verb}
POST /contexts/{id}/cancel
POST /contexts/{id}/remove
POST /contexts/{id}/retry
POST /lists/{id}/confirm
POST /producer/produce
POST /producer/register
POST /rules/{name}/disable
POST /rules/{name}/enable
POST /searches
POST /searches/{name}/remove
POST /sources
POST /sources/{id}/accept
POST /sources/{id}/fetch
POST /sources/{id}/remove
POST /tasks/{id}/cancel
POST /topics
"""
_ADMIN = """
DELETE /api/v1/credentials/{name}
PUT /api/v1/credentials/{name}
PATCH /api/v1/dataone/index
POST /api/v1/dataone/index/audit
PATCH /api/v1/dataone/nodes/{id}
POST /api/v1/dataone/nodes/{id}/approve
POST /api/v1/dataone/nodes/{id}/reconcile
POST /api/v1/dataone/nodes/{id}/replay
POST /api/v1/tokens
DELETE /api/v1/tokens/{id}
POST /api/v1/workers/tokens
DELETE /api/v1/workers/tokens/{id}
DELETE /api/v1/workers/{id}
POST /api/v1/workers/{id}/drain
POST /api/v1/workers/{id}/resume
POST /credentials
POST /credentials/{name}/remove
POST /credentials/{name}/rotate
"""


def _table(**routes: str) -> dict[tuple[str, str], Needed]:
    names: dict[str, Needed] = {"open": None, "known": "known", "read": "read", "write": "write", "admin": "admin"}
    lines = ((names[name], line.split()) for name, text in routes.items() for line in text.strip().splitlines())
    return {(method, path): needed for needed, (method, path) in lines}


#: by method and path, as OpenAPI writes it
NEEDED: Table = _table(open=_OPEN, known=_KNOWN, read=_READ, write=_WRITE, admin=_ADMIN)


def check_table(app: Litestar, table: Table = NEEDED) -> None:
    """A route that can change something and is not in the table is a fault of the program: it must not be served."""
    served = {
        (method, route.path_format)
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for method in route.methods
        if str(method) not in _SAFE
    }
    wrong = sorted(f"{method} {path}" for method, path in served ^ table.keys())
    if wrong:
        raise RuntimeError(f"the table of scopes in {__name__} and the routes differ: {', '.join(wrong)}")


def check_scope(connection: ASGIConnection[Any, Caller, Any, Any], _: BaseRouteHandler) -> None:
    """A guard of Litestar, which asks it before it reads the body."""
    scope = connection.scope
    needed = NEEDED.get((scope["method"], scope["path_template"])) if scope["type"] == ScopeType.HTTP else None
    if needed == "known":
        if not connection.user.known:
            raise NeedsToken("this needs a token", hint="send `Authorization: Bearer TOKEN`")
    elif needed is not None:
        connection.user.need(needed)
