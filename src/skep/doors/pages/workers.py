"""Workers: what they are like, what they run, and a selector tried on them."""

from collections.abc import Mapping
from typing import Any

from litestar import Response, get

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.http.workers import Chosen
from skep.doors.pages import show
from skep.doors.pages.render import page
from skep.errors import BadInput
from skep.model.answers import WorkerMatch
from skep.tasks.selector import FACTS

Facts = Mapping[str, str | float]
#: what gauges show
_GAUGED = ("memory", "memory_used", "disk", "disk_free", "load")


@get("/workers", include_in_schema=False)
async def workers_page(request: Asked, core: TheCore, caller: Asker, selector: Chosen = "") -> Response[bytes]:
    """A selector that cannot be read is no error of the page: somebody may be typing it."""
    matches: dict[str, WorkerMatch] = {}
    error = None
    if selector.strip():
        try:
            matches = {one.worker: one for one in await core.workers.select(caller, selector)}
        except BadInput as wrong:
            error = wrong
    values: dict[str, Any] = {"workers": await core.workers.list(caller), "selector": selector, "matches": matches}
    values |= {"error": error, "place": show.pointed(selector, error.column if error else None), "names": FACTS}
    return page(request, "workers.html", plain=plain, gauges=gauges, **values)


def plain(facts: Facts) -> list[tuple[str, str]]:
    """What no gauge shows, in the order in which selectors name them."""
    told = [(name, facts[name]) for name in FACTS if name in facts and name not in _GAUGED]
    return [(name, value if isinstance(value, str) else f"{value:g}") for name, value in told]


def gauges(facts: Facts) -> list[tuple[str, float, str]]:
    """Name, how full from 0 to 1, and that in words."""
    number = {name: float(value) for name, value in facts.items() if not isinstance(value, str)}
    memory, disk, cpu = (number.get(name, 0.0) for name in ("memory", "disk", "cpu"))
    used = {"memory": (number.get("memory_used", 0.0), memory), "disk": (disk - number.get("disk_free", disk), disk)}
    found = [
        (name, part / total, f"{show.size(int(part))} of {show.size(int(total))}")
        for name, (part, total) in used.items()
        if total
    ]
    load = number.get("load", 0.0)
    return [*found, ("load", min(1.0, load / cpu), f"{load:.1f} on {cpu:g} cores")] if cpu else found


HANDLERS = [workers_page]
