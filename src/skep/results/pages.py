"""What tasks measured: the newest first, or what matches; as numbers, not yet as a curve."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from skep.base.answers import Page
from skep.base.errors import BadInput
from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.web.render import page as render
from skep.results.api import Result, ResultQuery

_PER_PAGE = 50

Filters = Annotated[str, QueryParameter(max_length=1000, description="filters, divided by blanks")]


@get("/results")
async def results_page(
    request: Asked, core: TheCore, caller: Asker, where: Filters = "", page: PageToken = ""
) -> Response[bytes]:
    wrong = ""
    try:
        found = await core.results.query(caller, ResultQuery(tuple(where.split()), page=page, limit=_PER_PAGE))
    except BadInput as error:
        found, wrong = Page[Result]([]), f"{error.message}: {error.hint}"
    return render(request, "measured.html", 400 if wrong else 200, found=found, where=where, page=page, wrong=wrong)
