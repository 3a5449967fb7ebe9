"""Ups and downs of members, the newest of each: who goes down often is given less."""

from skep.storage.database import Tx

#: how many are remembered of a member, and for how long downs count against it
_MOST, UNSTABLE_SECONDS = 100, 3_600.0
#: a member that went down so often within that time is given less
UNSTABLE_DOWNS = 3
UP, DOWN = "up", "down"


async def happened(tx: Tx, member: str, at: float, what: str) -> None:
    """Numbered, because two things may happen in one moment. What is old goes."""
    rows = await tx.rows("UPDATE member_count SET n = n + 1 WHERE id = 0 RETURNING n")
    await tx.rows(
        "INSERT INTO member_event (n, member, at, what) VALUES (:n, :member, :at, :what)",
        n=rows[0]["n"],
        member=member,
        at=at,
        what=what,
    )
    await tx.rows(
        "DELETE FROM member_event WHERE member = :member AND n <= (SELECT n FROM member_event WHERE member = :member "
        "ORDER BY n DESC LIMIT 1 OFFSET :most)",
        member=member,
        most=_MOST,
    )
