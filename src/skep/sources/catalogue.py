"""The rows of the catalogue, and how they change inside somebody's transaction; their holders are told with them."""

from collections.abc import Sequence

import msgspec

from skep.engines.db.base import Tx, insert, upsert
from skep.fleet.service import Fleet
from skep.model.caller import Visibility
from skep.model.source import Source
from skep.sources.tables import INSERT_SOURCE, INSERT_URL, REVISED, revise

#: rung when anything a waiting person might look at moved
MOVED = "sources"
#: rung when the set of sources, their names or their visibility changed
CATALOGUE = "catalogue"


class Address(msgspec.Struct, frozen=True):
    canonical: str
    #: as it is asked
    url: str
    name: str


class New(msgspec.Struct, frozen=True):
    """A source that no URL leads to yet; `labels` and `settings` are JSON."""

    id: str
    address: Address
    kind: str = "git"
    visibility: Visibility = "public"
    labels: str = "[]"
    settings: str = "{}"
    size: int = 0
    #: only a list names it
    by_list: int = 0
    #: that should hold it
    workers: Sequence[str] = ()


class Catalogue:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def insert(self, tx: Tx, new: Sequence[New], now: float) -> None:
        count = await tx.rows("UPDATE source_count SET number = number + :n WHERE id = 0 RETURNING number", n=len(new))
        await revise(tx)
        rows = [
            {**msgspec.structs.asdict(one), **msgspec.structs.asdict(one.address), "number": number, "now": now}
            for number, one in enumerate(new, count[0]["number"] - len(new) + 1)
        ]
        await tx.many(INSERT_SOURCE, rows)
        await tx.many(INSERT_URL, rows)
        await self._fleet.assign_many(tx, [one.id for one in new], {one.id: one.workers for one in new if one.workers})

    async def change(
        self, tx: Tx, id: str, visibility: Visibility | None, labels: str | None, settings: str | None = None
    ) -> None:
        """None stays as it is; `labels` and `settings` are JSON."""
        await revise(tx)
        await tx.rows(
            "UPDATE source SET visibility = COALESCE(:visibility, visibility), labels = COALESCE(:labels, labels), "  # noqa: S608
            f"settings = COALESCE(:settings, settings), {REVISED} WHERE id = :id",
            visibility=visibility,
            labels=labels,
            settings=settings,
            id=id,
        )
        await self._fleet.ask(tx, "hold", id)

    async def readdress(self, tx: Tx, source: Source, address: Address) -> None:
        """A URL that no other source has."""
        await tx.rows("DELETE FROM url WHERE source = :id", id=source.id)
        await insert(tx, "url", canonical=address.canonical, source=source.id)
        await revise(tx)
        sql = f"UPDATE source SET url = :url, name = :name, {REVISED} WHERE id = :id"  # noqa: S608
        await tx.rows(sql, url=address.url, name=address.name, id=source.id)
        if address.name != source.name:
            await upsert(tx, "former_name", "name", name=source.name, source=source.id)

    async def discard(self, tx: Tx, sources: Sequence[str]) -> None:
        await self._fleet.release_many(tx, sources)
        ids = [{"id": id} for id in sources]
        for table in ("url", "former_name", "entry"):
            await tx.many(f"DELETE FROM {table} WHERE source = :id", ids)  # noqa: S608
        await revise(tx)
        await tx.many(
            f"UPDATE source SET state = 'removed', epoch = epoch + 1, {REVISED} WHERE id = :id",  # noqa: S608
            ids,
        )
        tx.ring(CATALOGUE)
        tx.ring(MOVED)


async def by_hand(tx: Tx, source: str) -> None:
    """A person asked for it: no list removes it from now on."""
    await tx.rows("UPDATE source SET by_list = 0 WHERE id = :id AND by_list = 1", id=source)
