"""Workers: what they are like, what they run, and a selector tried on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Response, get

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.http.workers import Chosen
from skep.doors.pages import charts, show
from skep.doors.pages.render import page
from skep.errors import BadInput
from skep.fleet.events import UNSTABLE_DOWNS
from skep.fleet.plan import Member, nodes_of
from skep.fleet.ring import Ring
from skep.model.answers import WorkerMatch, WorkerView
from skep.tasks.selector import FACTS

Facts = Mapping[str, str | float]
#: what gauges and the heading show
_GAUGED = ("memory", "memory_used", "disk", "disk_free", "load", "cpu_percent", "sampled_at")
_BYTES = ("network_in", "network_out")
_LIMIT = "limit."
#: as many as there are colours
_MOST_DRAWN = 8


@get("/workers")
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
    values["ring"] = _ring(values["workers"])
    values |= {"error": error, "place": show.pointed(selector, error.column if error else None), "names": FACTS}
    return page(request, "workers.html", plain=plain, gauges=gauges, limits=limits, steady=UNSTABLE_DOWNS, **values)


def _ring(workers: Sequence[WorkerView]) -> list[charts.Arc]:
    """Who would hold what by the ring alone; of one worker, or of very many, there is nothing to see."""
    members = [
        Member(one.member.id, one.offer.name, one.member.state, one.offer.capacity, one.draining, one.downs)
        for one in workers
        if one.offer.mirror
    ]
    nodes = nodes_of(members)
    if not 1 < len(nodes) <= _MOST_DRAWN:
        return []
    names = {one.id: one.name for one in members}
    return charts.ring([names[node.id] for node in nodes], Ring(nodes).stretches())


def plain(facts: Facts) -> list[tuple[str, str]]:
    """What no gauge shows: first what selectors compare, then the rest."""
    others = sorted(name for name in set(facts) - set(FACTS) if not name.startswith(_LIMIT))
    return [(name, _text(name, facts[name])) for name in (*FACTS, *others) if name in facts and name not in _GAUGED]


def limits(facts: Facts) -> list[tuple[str, str]]:
    """What commands are bounded in, and how: the same on most machines, so only who asks reads it."""
    return [(name.removeprefix(_LIMIT), str(facts[name])) for name in sorted(facts) if name.startswith(_LIMIT)]


def _text(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return show.size(int(value)) if name in _BYTES else f"{value:g}"


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
    if "cpu_percent" in number:
        found.append(("processor", number["cpu_percent"] / 100, f"{number['cpu_percent']:.0f} %"))
    if cpu and "load" in number:
        found.append(("load", min(1.0, number["load"] / cpu), f"{number['load']:.1f} on {cpu:g} cores"))
    return found
