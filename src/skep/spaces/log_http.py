"""The log of all processes."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from skep.base.answers import LogAnswer
from skep.base.log_lines import Level
from skep.interfaces.http.asgi import unless
from skep.interfaces.http.dependencies import Asked, Asker, Limit, TheCore

TAG = "system"
After = Annotated[int | None, QueryParameter(ge=0, description="only lines after this number; else the newest")]
Least = Annotated[Level, QueryParameter(description="this level and worse")]
Process = Annotated[str, QueryParameter(max_length=200, description="of this process: the id of a member")]
About = Annotated[str, QueryParameter(max_length=200, description="about this source or task")]
Wait = Annotated[float, QueryParameter(ge=0, le=60, description="seconds to wait when there is nothing `after` it yet")]


@get("/log", summary="Log lines of all processes")
async def read_log(
    request: Asked,
    core: TheCore,
    caller: Asker,
    after: After = None,
    limit: Limit = 100,
    level: Least = "debug",
    process: Process = "",
    about: About = "",
    wait: Wait = 0.0,
) -> LogAnswer:
    reading = core.log.read(caller, after=after, limit=limit, level=level, process=process, about=about, wait=wait)
    return LogAnswer(await unless(request.app.state.closing.wait(), reading) or [])
