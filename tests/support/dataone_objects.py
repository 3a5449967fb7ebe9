"""Objects put into a store as if a node had offered them, without a node."""

from collections.abc import AsyncIterator, Sequence
from itertools import accumulate

from skep.dataone.rpc import Brought
from skep.dataone.store import Store
from skep.dataone.types import SystemMetadata
from skep.storage.database import Tx, Value


async def put_object(
    store: Store, meta: SystemMetadata, data: bytes | None, node: str, *, sibling: bool = False
) -> str:
    """What was decided. `sibling`: the node is another Coordinating Node."""
    brought = [Brought(pid=meta.identifier, meta=meta, start=None if data is None else 0)]
    return (await _put(store, brought, data, node, sibling=sibling))[0]


async def put_objects(store: Store, metas: Sequence[SystemMetadata], data: bytes | None, node: str) -> list[str]:
    """In one batch, all with the same bytes."""
    brought = [Brought(pid=meta.identifier, meta=meta, start=None if data is None else 0) for meta in metas]
    return await _put(store, brought, data, node)


async def put_pack(store: Store, metas: Sequence[SystemMetadata], bodies: Sequence[bytes], node: str) -> list[str]:
    """In one batch, one behind the other, as a harvest brings them."""
    starts = accumulate(map(len, bodies), initial=0)
    brought = [Brought(pid=meta.identifier, meta=meta, start=start) for meta, start in zip(metas, starts, strict=False)]
    return await _put(store, brought, b"".join(bodies), node)


async def lose_object(store: Store, pid: str, node: str) -> str:
    """The node neither lists it nor has it when it is asked; what was decided."""
    source = _source(node)
    sql = "UPDATE offer SET state = 'missing' WHERE source = :source AND pid = :pid"

    async def work(tx: Tx) -> str:
        await tx.rows(sql, source=source["source"], pid=pid)
        absent = [Brought(pid=pid, kind="absent", trouble="it is not there")]
        return (await store.settling.settle(tx, source, absent, None, store.clock.now()))[pid].verdict

    return await store.db.write(work)


def _source(node: str) -> dict[str, Value]:
    source: dict[str, Value] = {"source": f"put:{node}", "urn": node, "doc": "{}", "version": "v2", "epoch": 1}
    return source | {"name": node, "url": node, "kind": "dataone", "batches": 0, "registered": 0, "full_at": 0.0}


async def _put(
    store: Store, brought: Sequence[Brought], data: bytes | None, node: str, *, sibling: bool = False
) -> list[str]:
    async def chunks() -> AsyncIterator[bytes]:
        yield data or b""

    blob = (await store.blobs.put(chunks())).id if data is not None else None
    source = _source(node)

    async def work(tx: Tx) -> list[str]:
        await tx.many(
            "INSERT INTO offer (source, pid, modified, checksum, state, reason, due, tries, ticket, until, again, "
            "pass, seq) VALUES (:source, :pid, 0, '', 'queued', '', 0, 0, '', 0, 0, 0, 0) "
            "ON CONFLICT (source, pid) DO NOTHING",
            [{"source": source["source"], "pid": one.pid} for one in brought],
        )
        found = await store.settling.settle(tx, source, brought, blob, store.clock.now(), sibling=sibling)
        return [found[one.pid].verdict for one in brought]

    return await store.db.write(work)
