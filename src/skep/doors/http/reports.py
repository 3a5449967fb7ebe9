"""What analysis found out about sources."""

from typing import Annotated

from litestar import get
from litestar.params import FromPath, QueryParameter

from skep.doors.http.given import Asker, TheCore
from skep.model.answers import ReportAnswer

Commit = Annotated[str, QueryParameter(description="the beginning of its id; empty: the newest", max_length=64)]


@get("/sources/{id:str}/report", tags=["sources"], summary="Languages, functions, licence and sizes of a source")
async def show_report(core: TheCore, caller: Asker, id: FromPath[str], commit: Commit = "") -> ReportAnswer:
    return await core.reports.show(caller, id, commit)


HANDLERS = [show_report]
