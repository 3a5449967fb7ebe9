"""Tunnels that were asked for, until the coordinator that the giver is attached to has told it; the key of tickets.

A row lives for a minute at most: a ticket is soon void, and who wanted the bytes asks again.
"""

import secrets

from skep.engines.db.base import Database, Tx
from skep.model.ids import new_id

STEPS = [
    """
    CREATE TABLE opening (
        id TEXT PRIMARY KEY, member TEXT NOT NULL, body BYTEA NOT NULL, until DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX opening_member ON opening (member);
    CREATE TABLE ticket_key (id BIGINT PRIMARY KEY, secret TEXT NOT NULL)
    """
]


def channel(member: str) -> str:
    return f"openings:{member}"


async def start(db: Database) -> bytes:
    """The key that everybody on this database signs tickets with."""
    await db.migrate("openings", STEPS)
    secret = secrets.token_hex(32)

    async def work(tx: Tx) -> str:
        await tx.rows("INSERT INTO ticket_key (id, secret) VALUES (0, :s) ON CONFLICT (id) DO NOTHING", s=secret)
        rows = await tx.rows("SELECT secret FROM ticket_key WHERE id = 0")
        return str(rows[0]["secret"])

    return bytes.fromhex(await db.write(work))


async def ask(db: Database, member: str, body: bytes, now: float, until: float) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("DELETE FROM opening WHERE until < :now", now=now)
        await tx.rows(
            "INSERT INTO opening (id, member, body, until) VALUES (:id, :member, :body, :until)",
            id=new_id("opn", now),
            member=member,
            body=body,
            until=until,
        )
        tx.ring(channel(member))

    await db.write(work, runtime=True)


async def take(db: Database, member: str, now: float) -> list[bytes]:
    """Those that the member is to be told of; nobody else gets them again."""
    if not await db.read("SELECT id FROM opening WHERE member = :member LIMIT 1", member=member):
        return []
    rows = await db.write(
        lambda tx: tx.rows("DELETE FROM opening WHERE member = :member RETURNING body, until", member=member),
        runtime=True,
    )
    return [bytes(row["body"]) for row in rows if row["until"] > now]
