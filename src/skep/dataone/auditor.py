"""Compares store and index of records, both ways."""

import logging

import msgspec

from skep.dataone.fields import KIND, PLACES
from skep.dataone.store import Store
from skep.engines.records.base import MOST_RECORDS, Ask, OneOf, Records

log = logging.getLogger(__name__)

_OBJECTS = """
    SELECT pid, serial, archived, deleted, (SELECT count(*) FROM backlog
        WHERE backlog.pid = sysmeta.pid AND work IN ('index', :work)) AS waits
    FROM sysmeta WHERE pid > :last ORDER BY pid LIMIT :limit
"""


class Findings(msgspec.Struct):
    """What nobody waited for, by what was wrong with it."""

    #: objects without a record
    missing: int = 0
    #: records of what an object was before
    old: int = 0
    #: records of what is archived or deleted, or was never there
    surplus: int = 0

    @property
    def total(self) -> int:
        return self.missing + self.old + self.surplus


async def audit(store: Store, records: Records, work: str) -> Findings:
    """Objects that have no record, or an old one, wait for `work` then; records of nothing go."""
    found, most = Findings(), 0
    last = ""
    while rows := await store.db.read(_OBJECTS, last=last, work=work, limit=MOST_RECORDS):
        last = rows[-1]["pid"]
        right = {row["pid"]: None if row["archived"] or row["deleted"] else str(row["serial"]) for row in rows}
        page = await records.search(KIND.name, Ask(only=(OneOf("id", list(right)),), limit=len(right)))
        have = {one.id: one.values.get("state") for one in page.records}
        waiting = {row["pid"] for row in rows if row["waits"]}
        wrong = [pid for pid, state in right.items() if have.get(pid) != state and pid not in waiting]
        if wrong:
            await store.again(work, wrong)
        found.missing += sum(pid not in have for pid in wrong)
        found.surplus += sum(right[pid] is None for pid in wrong)
        found.old += sum(pid in have and right[pid] is not None for pid in wrong)
        most += sum(state is not None or pid in have for pid, state in right.items())
    if (await records.search(KIND.name, Ask(limit=0))).total > most:
        found.surplus += await _disown(store, records)
    if found.total:
        log.warning("records were missing, old or of nothing", extra=msgspec.structs.asdict(found))
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
