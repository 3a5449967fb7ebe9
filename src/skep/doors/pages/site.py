"""All pages."""

from litestar import Litestar, Router

from skep.doors.http.given import routes
from skep.doors.pages import (
    benchmarks,
    contexts,
    credentials,
    docs,
    files,
    lists,
    log,
    login,
    packages,
    records,
    reports,
    results,
    rules,
    search,
    searches,
    sources,
    static,
    status,
    tasks,
    topics,
    workers,
)

#: bytes of a form: a URL, a name, a key
FORM_LIMIT = 65_536

PAGES = Router(
    "/",
    route_handlers=[
        *routes(search, searches, sources, reports, records, lists, credentials, files, login, topics, contexts),
        *routes(tasks, packages, results, workers, rules, benchmarks, status, log, docs, static),
    ],
    include_in_schema=False,
    # a form is decoded on the event loop
    request_max_body_size=FORM_LIMIT,
)


async def close(app: Litestar) -> None:
    await files.close(app)
