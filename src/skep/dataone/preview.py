"""What a harvest would bring: a node's list compared with what we know, and nothing written."""

from collections import Counter
from collections.abc import Awaitable, Callable

from skep.dataone.client import NodeClient, Refused
from skep.dataone.listing import PAGE
from skep.dataone.nodes import Nodes, doc_of, limits_of
from skep.dataone.types import ObjectInfo
from skep.dataone.windows import Window, begin
from skep.engines.db.base import Database, among
from skep.errors import Unavailable
from skep.model.caller import Caller
from skep.model.dataone import Preview

#: entries of a list that are looked at, and of those that would be brought the ones that are named
_MOST, _NAMED = 10 * PAGE, 20


class Previews:
    def __init__(self, db: Database, nodes: Nodes, client: Callable[[str], Awaitable[NodeClient]]) -> None:
        """`client` speaks to a node by its base URL."""
        self._db = db
        self._nodes = nodes
        self._client = client

    async def show(self, caller: Caller, ref: str, *, since: float | None = None) -> Preview:
        """From where the next harvest begins, unless it is said."""
        caller.need("admin")
        row = await self._nodes.find(caller, ref)
        node, start, counts, named = doc_of(row), 0, Counter[str](), list[str]()
        client = await self._client(row["url"] or node.base_url)
        client.version, client.sibling, client.gate.limits = node.version, node.type == "cn", limits_of(row)
        window = Window(begin(row["place"]) if since is None else self._nodes.past(since), None)
        while True:
            try:
                page = await client.list(window, start, PAGE)
            except Refused as error:
                raise Unavailable(f"{row['urn']}: {error}") from None
            known = await self._known(row["source"] or "", page.object_info)
            for one in page.object_info:
                word = _differs(one, known.get(one.identifier))
                counts[word] += 1
                if word != "unchanged" and len(named) < _NAMED:
                    named.append(one.identifier)
            start += len(page.object_info) + len(page.unread)
            if start >= min(page.total, _MOST) or not page.object_info or not client.slices:
                return Preview(max(start, page.total), start, dict(counts), named)

    async def _known(self, source: str, entries: tuple[ObjectInfo, ...]) -> dict[str, tuple[int, str]]:
        places, names = among([one.identifier for one in entries])
        mine = f"source = :source AND state <> 'gone' AND pid IN ({places})"
        sql = f"SELECT pid, modified, checksum FROM offer WHERE {mine}"  # noqa: S608
        rows = await self._db.read(sql, source=source, **names) if entries else []
        return {row["pid"]: (row["modified"], row["checksum"]) for row in rows}


def _differs(one: ObjectInfo, known: tuple[int, str] | None) -> str:
    if known is None:
        return "new"
    return "unchanged" if known == (one.date_sys_metadata_modified, one.checksum.spelled) else "changed"
