"""The log of all processes, the newest lines last."""

from litestar import Response, get

from skep.base.log_lines import SEVERITY
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web.render import page
from skep.spaces.log_http import About, Least, Process

_LINES = 300


@get("/log")
async def log_page(
    request: Asked, core: TheCore, caller: Asker, level: Least = "info", process: Process = "", about: About = ""
) -> Response[bytes]:
    lines = await core.log.read(caller, limit=_LINES, level=level, process=process, about=about)
    asked = {"level": level, "process": process, "about": about}
    return page(request, "log.html", lines=lines, asked=asked, levels=list(SEVERITY))
