"""How a watch stands in the worker's file: one row of `held`, one of `look`."""

import msgspec

from skep.engines.db.base import Row, Tx, Value
from skep.model.source import Held
from skep.schedule.cadence import Bounds
from skep.schedule.estimate import FIRST_OBSERVED
from skep.worker import tables
from skep.worker.watch import Watch

_encode = msgspec.msgpack.encode
_held = msgspec.msgpack.Decoder(Held).decode

_NOTED = (
    "last_looked",
    "last_changed",
    "next_look",
    "failures",
    "failure",
    "changes",
    "observed",
    "wait",
)


def note_of(watch: Watch) -> dict[str, Value]:
    bounds = watch.bounds
    noted = {name: getattr(watch, name) for name in _NOTED}
    return {
        "source": watch.source,
        "epoch": watch.held.epoch,
        "replica": int(not watch.held.primary),
        "shortest": bounds.shortest,
        "longest": bounds.longest,
        **noted,
    }


def watch_of(row: Row) -> Watch:
    held = msgspec.structs.replace(_held(row["spec"]), seen=row["seen"], batches=row["batches"])
    bounds = Bounds(row["shortest"], row["longest"])
    noted = {name: row[name] for name in _NOTED}
    return Watch(held, asks=row["asked"], fetching=bool(row["fetching"]), bounds=bounds, **noted)


async def hold(tx: Tx, held: Held, now: float) -> None:
    known = await tx.rows(tables.KNOWN, source=held.source)
    spec = _encode(msgspec.structs.replace(held, told={}, seen="", batches=0))
    if known and known[0]["epoch"] > held.epoch:
        return
    if known and known[0]["epoch"] == held.epoch and (before := _held(known[0]["spec"])).primary == held.primary:
        anew = known[0]["released"] or before.url != held.url
        await tx.rows(tables.HOLD_AGAIN, source=held.source, spec=spec, anew=int(anew))
        if anew or not held.primary or (before.settings, before.accepted) != (held.settings, held.accepted):
            await tx.rows("UPDATE look SET next_look = :now WHERE source = :source", source=held.source, now=now)
        return
    await tx.rows(
        tables.HOLD,
        source=held.source,
        epoch=held.epoch,
        spec=spec,
        told=_encode(held.told),
        batches=held.batches,
        replica=int(not held.primary),
    )
    await tx.rows(
        tables.ENTER,
        source=held.source,
        now=now,
        changed_at=held.changed_at,
        changes=held.changes,
        observed=FIRST_OBSERVED + held.observed,
    )
