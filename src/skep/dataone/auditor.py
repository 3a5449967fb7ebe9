"""Compares store and index of records, both ways."""

import logging

from skep.dataone.fields import KIND, PLACES
from skep.dataone.store import Store
from skep.engines.records.base import MOST_RECORDS, Ask, OneOf, Records

log = logging.getLogger(__name__)


async def audit(store: Store, records: Records, work: str) -> int:
    """How many records were wrong. Objects that have none, or an old one, wait for `work`; records of nothing go."""
    found = live = 0
    last = ""
    while rows := await store.db.read(
        "SELECT pid, serial, archived, deleted FROM sysmeta WHERE pid > :last ORDER BY pid LIMIT :limit",
        last=last,
        limit=MOST_RECORDS,
    ):
        last = rows[-1]["pid"]
        right = {row["pid"]: None if row["archived"] or row["deleted"] else str(row["serial"]) for row in rows}
        page = await records.search(KIND.name, Ask(only=(OneOf("id", list(right)),), limit=len(right)))
        have = {one.id: one.values.get("state") for one in page.records}
        if wrong := [pid for pid, state in right.items() if have.get(pid) != state]:
            await store.again(work, wrong)
        found += len(wrong)
        live += sum(state is not None for state in right.values())
    if (await records.search(KIND.name, Ask(limit=0))).total > live + found:
        found += await _disown(store, records)
    if found:
        log.warning("records were missing, old or of nothing", extra={"records": found})
    return found


async def _disown(store: Store, records: Records) -> int:
    """Remove the records of objects that the store has never heard of, as after it was restored."""
    removed, parts = 0, [(0, PLACES)]
    while parts:
        low, end = parts.pop()
        page = await records.search(KIND.name, Ask(f"place:[{low} TO {end - 1}]", limit=MOST_RECORDS))
        if page.total > MOST_RECORDS and end - low > 1:
            parts += [(low, (low + end) // 2), ((low + end) // 2, end)]
            continue
        known = await store.get_many([one.id for one in page.records], deleted=True)
        if gone := [one.id for one in page.records if one.id not in known]:
            await records.delete(KIND.name, OneOf("id", gone))
        removed += len(gone)
    return removed
