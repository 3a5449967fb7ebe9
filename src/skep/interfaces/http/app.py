"""The HTTP door put together: API, pages and git behind one guard."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import MethodNotAllowedException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

import skep
from skep.access import audit_http
from skep.access import http as tokens
from skep.base.clock import Clock, SystemClock
from skep.benchmarks import http
from skep.config.settings import Settings
from skep.dataone import http as dataone_nodes
from skep.dataone import node_api
from skep.dataone.node_app import NodeDoor
from skep.dataone.node_errors import CN, MN
from skep.dataone.service import DataOne
from skep.fleet import http as workers
from skep.interfaces.core import Core
from skep.interfaces.http.dependencies import Asked, provide, routes
from skep.interfaces.http.errors import handle
from skep.interfaces.http.guard import Guard
from skep.interfaces.http.scopes import check_scope, check_table
from skep.interfaces.web import site
from skep.mirrors.http import GitDoor
from skep.packages import http as packages
from skep.results import http as results
from skep.rules import http as rules
from skep.search import http as search
from skep.sources import credentials_http, webhooks_http
from skep.sources import http as sources
from skep.sources.lists import http as lists
from skep.spaces import http as spaces
from skep.spaces import log_http
from skep.status import http as health
from skep.status import system_http
from skep.tasks import contexts_http
from skep.tasks import http as tasks
from skep.topics import groups_http, legacy_queue_http
from skep.topics import http as topics
from skep.topics.messages_http import PublishDoor, ReadDoor, body_limit, is_messages

API_BODY_LIMIT = 1_000_000

Bare = Callable[[HTTPScope, Receive, Send], Awaitable[None]]


def create_app(core: Core, settings: Settings, closing: asyncio.Event | None = None) -> ASGIApp:
    """`closing`, once set, ends what would otherwise wait and follow on: a server that stops need not wait for it."""
    clock, closing = SystemClock(), closing or asyncio.Event()
    inner = Litestar(
        [_api(), *_others(settings), *routes(webhooks_http), site.PAGES],
        dependencies=provide(core, settings),
        guards=[check_scope],
        exception_handlers={Exception: handle},
        request_class=Asked,
        openapi_config=_openapi(),
        request_max_body_size=API_BODY_LIMIT,
        on_shutdown=[site.close],
        logging_config=None,
        state=State({"clock": clock, "settings": settings, "closing": closing}),
    )
    check_table(inner)
    messages: dict[str, Bare] = {"POST": PublishDoor(core.topics, settings), "GET": ReadDoor(core.topics, closing)}
    searches: dict[str, Bare] = {"GET": search.SearchDoor(core.search, settings)}
    bare: dict[str, Bare] = {"/git/": GitDoor(core.gather, settings), **_nodes(core.dataone, clock)}
    return Guard(_fork(inner, bare, messages, searches), core.access, settings)


def _nodes(dataone: DataOne, clock: Clock) -> dict[str, Bare]:
    """What we are in DataONE, by path."""
    found: dict[str, Bare] = {CN: NodeDoor(CN, dataone, dataone, node_api.CALLS, clock)}
    if dataone.copies:
        found[MN] = NodeDoor(MN, dataone, dataone.copies, node_api.MEMBER_CALLS, clock)
    return found


def _fork(
    pages: ASGIApp, bare: Mapping[str, Bare], messages: Mapping[str, Bare], searches: Mapping[str, Bare]
) -> ASGIApp:
    """Past Litestar go git and DataONE, whose paths it would tidy up, and, for speed, messages and searches."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await pages(scope, receive, send)
        elif verbs := messages if is_messages(scope) else searches if scope["path"] == search.PATH else None:
            if scope["method"] not in verbs:
                raise MethodNotAllowedException(headers={"allow": ", ".join(verbs)})
            await verbs[scope["method"]](scope, receive, send)
        else:
            door = next((door for path, door in bare.items() if scope["path"].startswith(path)), pages)
            await door(scope, receive, send)

    return app


def _api() -> Router:
    """/docs lists each room under its TAG."""
    rooms = (
        *(
            sources,
            lists,
            search,
            tokens,
            audit_http,
            credentials_http,
            topics,
            groups_http,
            spaces,
            contexts_http,
            tasks,
        ),
        *(packages, results, workers, rules, http, log_http, dataone_nodes, system_http),
    )
    return Router("/api/v1", route_handlers=[Router("/", route_handlers=routes(one), tags=[one.TAG]) for one in rooms])


def _others(settings: Settings) -> list[Router]:
    """What is not of the API."""
    limit = body_limit(settings)
    return [
        Router("/", route_handlers=routes(legacy_queue_http), request_max_body_size=limit, include_in_schema=False),
        Router("/", route_handlers=routes(health), include_in_schema=False),
    ]


def _openapi() -> OpenAPIConfig:
    bearer = SecurityScheme(type="http", scheme="bearer", description="a token of `skep token create`")
    return OpenAPIConfig(
        title="Skep",
        version=skep.__version__,
        path="/api/v1/schema",
        render_plugins=[JsonRenderPlugin()],
        components=Components(security_schemes={"token": bearer}),
        security=[{"token": []}],
    )
