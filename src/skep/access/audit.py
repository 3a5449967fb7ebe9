"""Who changed what, written in the same transaction as the change."""

from skep.engines.db.base import Tx
from skep.model.caller import Caller


async def note(tx: Tx, now: float, caller: Caller, verb: str, what: str) -> None:
    await tx.rows(
        "INSERT INTO audit (at, caller, verb, what) VALUES (:at, :caller, :verb, :what)",
        at=now,
        caller=caller.subject,
        verb=verb,
        what=what,
    )
