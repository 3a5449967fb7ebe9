"""All pages in one list."""

from litestar import Litestar

from skep.doors.pages import docs, files, login, rules, search, sources, static, status, topics

HANDLERS = [
    *search.HANDLERS,
    *sources.HANDLERS,
    *files.HANDLERS,
    *login.HANDLERS,
    *topics.HANDLERS,
    *rules.HANDLERS,
    *status.HANDLERS,
    *docs.HANDLERS,
    static.static_file,
]


async def close(app: Litestar) -> None:
    await files.close(app)
