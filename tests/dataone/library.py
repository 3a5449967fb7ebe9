"""A store and the index of its records, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skep.access.tokens import Access
from skep.base.caller import SYSTEM, Caller
from skep.dataone.index import RecordIndex
from skep.dataone.store import Store
from skep.storage.records.base import Ask, Records
from skep.storage.records.tantivy_index import FolderRecords
from tests.support.dataone_objects import put_object

from .objects import NODE, meta_of

ANYBODY = Caller("anonymous", frozenset({"read"}), known=False)
RITA = Caller("rita", frozenset({"read"}))
BOB = Caller("bob", frozenset({"read"}))


class Library:
    """A store and its index."""

    def __init__(self, store: Store, index: RecordIndex, records: Records) -> None:
        self.store, self.index, self.records = store, index, records

    async def put(self, pid: str, body: bytes = b"data", **more: object) -> str:
        return await put_object(self.store, meta_of(pid, body, **more), body, NODE)

    async def found(self, text: str, caller: Caller = ANYBODY) -> list[str]:
        return sorted(one.id for one in (await self.index.search(caller, Ask(text))).records)

    async def field(self, pid: str, name: str) -> object:
        (one,) = (await self.index.search(SYSTEM, Ask(f'id:"{pid}"'))).records
        return one.values.get(name, [])


@asynccontextmanager
async def library_of(store: Store, folder: Path, records: Records | None = None) -> AsyncIterator[Library]:
    """In the folder, unless other `records` are given."""
    engine = records or FolderRecords(folder / "records")
    await Access(store.db, store.clock, folder, open_read=True).start()
    index = RecordIndex(store.db, store.clock, store, engine, after=3, within=30.0, base="https://skep.example")
    await index.start()
    yield Library(store, index, engine)
    await engine.close()
