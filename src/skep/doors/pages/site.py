"""All pages in one list."""

from litestar import Litestar

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

HANDLERS = [
    *search.HANDLERS,
    *searches.HANDLERS,
    *sources.HANDLERS,
    *reports.HANDLERS,
    *records.HANDLERS,
    *lists.HANDLERS,
    *credentials.HANDLERS,
    *files.HANDLERS,
    *login.HANDLERS,
    *topics.HANDLERS,
    *contexts.HANDLERS,
    *tasks.HANDLERS,
    *packages.HANDLERS,
    *results.HANDLERS,
    *workers.HANDLERS,
    *rules.HANDLERS,
    *benchmarks.HANDLERS,
    *status.HANDLERS,
    *log.HANDLERS,
    *docs.HANDLERS,
    static.static_file,
]


async def close(app: Litestar) -> None:
    await files.close(app)
