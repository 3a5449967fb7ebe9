"""A record of science metadata as a page: what, who, where, when, and what belongs to it."""

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from skep.base.caller import Caller
from skep.base.errors import NotFound
from skep.dataone.api import MemberNode
from skep.dataone.encoding import instant
from skep.dataone.nodes import KIND
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web.render import page
from skep.sources.model import Source
from skep.storage.records.base import Ask, OneOf

LATITUDES, LONGITUDES = "SN", "WE"
_SIDES = ("west", "south", "east", "north")
#: members of a resource map, and maps of a record, that are shown
_SHOWN, _MAPS = 200, 3
Id = Annotated[str, QueryParameter(min_length=1, max_length=800)]


class Box(msgspec.Struct, frozen=True):
    """On a map of 360 by 180, as rectangles: two where it crosses the date line."""

    parts: tuple[tuple[float, float, float, float], ...]
    text: str


def box(values: dict[str, Any]) -> Box | None:
    sides = [values.get(f"{side}BoundCoord") for side in _SIDES]
    if any(not isinstance(side, int | float) for side in sides):
        return None
    west, south, east, north = (float(side) for side in sides if side is not None)
    spans = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    y, height = _wide(90 - north, 90 - south)
    across = (_wide(left + 180, right + 180) for left, right in spans)
    text = f"{_range(south, north, LATITUDES)}, {_range(west, east, LONGITUDES)}"
    return Box(tuple((x, y, width, height) for x, width in across), text)


def _wide(start: float, end: float) -> tuple[float, float]:
    """Start and length of what can be seen; a point is in the middle of it."""
    length = max(end - start, 1.0)
    return (start + end - length) / 2, length


def _range(start: float, end: float, letters: str) -> str:
    return " to ".join(dict.fromkeys(degrees(value, letters) for value in (start, end)))


def degrees(value: float, letters: str) -> str:
    """Such as 30°S; `letters` are those of negative and positive ones."""
    return f"{abs(value):g}°{letters[value > 0] if value else ''}"


@get("/record")
async def record_page(request: Asked, core: TheCore, caller: Asker, id: Id) -> Response[bytes]:
    """By query, not by path: an identifier may hold anything."""
    found = await core.dataone.get(caller, id)
    pid = found.meta.identifier
    found = (await core.dataone.store.linked({pid: found}))[pid]
    records = await _values(core, caller, [pid])
    values = records.get(pid, {})
    maps = [pid] if found.kind == "RESOURCE" else list(values.get("resourceMap", []))[:_MAPS]
    members = {one: await _members(core, caller, one) for one in await _values(core, caller, maps)}
    return page(
        request,
        "record.html",
        id=pid,
        meta=found.meta,
        kind=found.kind,
        values=values,
        box=box(values),
        meridians=[(at + 180, degrees(at, LONGITUDES)) for at in range(-180, 181, 30)],
        parallels=[(90 - at, degrees(at, LATITUDES)) for at in range(-90, 91, 30)],
        times=[instant(values[name])[:10] for name in ("beginDate", "endDate") if name in values],
        members=members,
        versions=await core.dataone.store.versions_for(caller, pid),
        held=found.blob is not None,
    )


async def node_of(core: TheCore, caller: Caller, source: Source) -> MemberNode | None:
    """Of a source that is a Member Node, once it has said what it is."""
    if source.kind != KIND:
        return None
    with suppress(NotFound):
        return await core.dataone.nodes.show(caller, source.id)
    return None


async def _members(core: TheCore, caller: Caller, map: str) -> list[tuple[str, str, str]]:
    """Identifier, title and format of each; of what the caller may not see, or we do not have, only the first."""
    names = await core.dataone.index.maps.members(map, _SHOWN)
    records = await _values(core, caller, names)
    return [
        (name, str(records.get(name, {}).get("title", "")), str(records.get(name, {}).get("formatId", "")))
        for name in names
    ]


async def _values(core: TheCore, caller: Caller, ids: list[str]) -> dict[str, dict[str, Any]]:
    if not ids:
        return {}
    found = await core.dataone.index.search(caller, Ask(only=(OneOf("id", ids),), limit=len(ids)))
    return {one.id: dict(one.values) for one in found.records}
