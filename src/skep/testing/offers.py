"""Objects put into a store as if a node had offered them, without a node."""

from collections.abc import AsyncIterator

from skep.dataone.asks import Brought
from skep.dataone.store import Store
from skep.dataone.types import SystemMetadata
from skep.engines.db.base import Tx, Value


async def put_object(store: Store, meta: SystemMetadata, data: bytes | None, node: str) -> str:
    """What was decided."""

    async def chunks() -> AsyncIterator[bytes]:
        yield data or b""

    blob = (await store.blobs.put(chunks())).id if data is not None else None
    one = Brought(pid=meta.identifier, meta=meta, start=None if data is None else 0)
    source: dict[str, Value] = {"source": f"put:{node}", "urn": node, "doc": "{}", "version": "v2", "epoch": 1}
    source |= {"name": node, "url": node, "kind": "dataone", "batches": 0, "registered": 0, "full_at": 0.0}

    async def work(tx: Tx) -> str:
        await tx.rows(
            "INSERT INTO offer (source, pid, modified, checksum, state, reason, due, tries, ticket, until, again, "
            "pass, seq) VALUES (:source, :pid, 0, '', 'queued', '', 0, 0, '', 0, 0, 0, 0) "
            "ON CONFLICT (source, pid) DO NOTHING",
            source=source["source"],
            pid=one.pid,
        )
        found = await store.settling.settle(tx, source, [one], blob, store.clock.now())
        return found[one.pid].verdict

    return await store.db.write(work)
