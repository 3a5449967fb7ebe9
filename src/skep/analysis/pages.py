"""The report of a source as a page: pictures first, tables below."""

from litestar import Response, get
from litestar.params import FromPath

from skep.analysis.model import Hot
from skep.base.answers import ReportAnswer
from skep.base.errors import NotFound
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web import render
from skep.interfaces.web.render import page
from skep.sources.http import OfCommit

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
    languages = render.shares([(one.name, one.share.lines) for one in found.languages])
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


def _bars(hot: list[Hot]) -> list[tuple[Hot, list[render.Part]]]:
    """Each as long as all it counts, beside the longest."""
    longest = max((one.assignments + one.branches + one.conditions for one in hot), default=1) or 1
    pieces = ("assignments", "branches", "conditions")
    return [(one, render.bar([(piece, getattr(one, piece)) for piece in pieces], longest)) for one in hot]


def _curves(answer: ReportAnswer) -> list[tuple[str, render.Curve]]:
    history = answer.history
    drawn = {
        "Lines": render.curve([(point.at, point.lines) for point in history]),
        "Functions": render.curve([(point.at, point.functions) for point in history]),
        "Mean complexity": render.curve([(point.at, point.complexity) for point in history]),
        "Mean score": render.curve([(point.at, point.score) for point in history]),
    }
    return [(name, one) for name, one in drawn.items() if one is not None]
