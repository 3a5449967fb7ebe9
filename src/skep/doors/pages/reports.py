"""The report of a source as a page: pictures first, tables below."""

from litestar import Response, get
from litestar.params import FromPath

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.http.sources import OfCommit
from skep.doors.pages import charts
from skep.doors.pages.render import page
from skep.errors import NotFound
from skep.model.answers import ReportAnswer
from skep.model.report import Hot

_HOT = 12


@get("/sources/{id:str}/report")
async def report_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], commit: OfCommit = ""
) -> Response[bytes]:
    source = await core.sources.show(caller, id)
    try:
        answer = await core.reports.show(caller, source.id, commit)
    except NotFound:
        if commit:
            raise
        return page(request, "report.html", source=source, answer=None)
    found = answer.report
    languages = charts.shares([(one.name, one.share.lines) for one in found.languages])
    return page(
        request,
        "report.html",
        source=source,
        answer=answer,
        found=found,
        languages=languages,
        hot=_bars(found.hot[:_HOT]),
        curves=_curves(answer),
    )


def _bars(hot: list[Hot]) -> list[tuple[Hot, list[charts.Part]]]:
    """Each as long as all it counts, beside the longest."""
    longest = max((one.assignments + one.branches + one.conditions for one in hot), default=1) or 1
    pieces = ("assignments", "branches", "conditions")
    return [(one, charts.bar([(piece, getattr(one, piece)) for piece in pieces], longest)) for one in hot]


def _curves(answer: ReportAnswer) -> list[tuple[str, charts.Curve]]:
    history = answer.history
    drawn = {
        "Lines": charts.curve([(point.at, point.lines) for point in history]),
        "Functions": charts.curve([(point.at, point.functions) for point in history]),
        "Mean complexity": charts.curve([(point.at, point.complexity) for point in history]),
        "Mean score": charts.curve([(point.at, point.score) for point in history]),
    }
    return [(name, one) for name, one in drawn.items() if one is not None]
