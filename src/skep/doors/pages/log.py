"""The log of all processes, the newest lines last."""

from litestar import Response, get

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.http.log import About, Least, Process
from skep.doors.pages.render import page
from skep.model.log import SEVERITY

_LINES = 300


@get("/log")
async def log_page(
    request: Asked, core: TheCore, caller: Asker, level: Least = "info", process: Process = "", about: About = ""
) -> Response[bytes]:
    lines = await core.log.read(caller, limit=_LINES, level=level, process=process, about=about)
    asked = {"level": level, "process": process, "about": about}
    return page(request, "log.html", lines=lines, asked=asked, levels=list(SEVERITY))
