"""All pages."""

from litestar import Litestar, Router

from skep.access import pages as login
from skep.analysis import pages as reports
from skep.benchmarks import pages
from skep.dataone import pages as records
from skep.interfaces.http import routes as docs
from skep.interfaces.http.dependencies import routes
from skep.interfaces.web import render
from skep.mirrors import http
from skep.packages import pages as packages
from skep.results import pages as results
from skep.rules import pages as rules
from skep.search import pages as search
from skep.sources import pages as sources
from skep.spaces import log_pages
from skep.status import pages as status
from skep.tasks import pages as contexts
from skep.topics import pages as topics

#: bytes of a form: a URL, a name, a key
FORM_LIMIT = 65_536

PAGES = Router(
    "/",
    route_handlers=[
        *routes(search, sources, reports, records, http, login, topics, contexts),
        *routes(packages, results, rules, pages, status, log_pages, docs, render),
    ],
    include_in_schema=False,
    # a form is decoded on the event loop
    request_max_body_size=FORM_LIMIT,
)


async def close(app: Litestar) -> None:
    await http.close(app)
