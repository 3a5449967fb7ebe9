"""Access: tokens, who they stand for, and the one-time tickets behind login links.

A token is 256 random bits; only its hash is stored. The admin token of the first start lies in DATA/admin.token.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import get_args

import msgspec

from skep.access.audit import note
from skep.clock import Clock
from skep.disk import write_private
from skep.engines.db.base import Database, Row, Tx, insert
from skep.errors import BadInput, NeedsToken, NotFound
from skep.model.answers import NewToken, Page, TokenInfo
from skep.model.caller import Caller, Scope

TICKET_SECONDS = 600.0
SESSION_SECONDS = 30 * 86_400.0
#: so long is a token not looked up again; in other processes a revoked one lives on for as long
REMEMBER_SECONDS = 2.0
_REMEMBER_MOST = 1000
_STEPS = [
    """
    CREATE TABLE token (
        hash TEXT PRIMARY KEY, subject TEXT NOT NULL, scopes TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION, session BIGINT NOT NULL
    );
    CREATE TABLE ticket (hash TEXT PRIMARY KEY, subject TEXT NOT NULL, scopes TEXT NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL);
    CREATE TABLE audit (at DOUBLE PRECISION NOT NULL, caller TEXT NOT NULL, verb TEXT NOT NULL, what TEXT NOT NULL);
    CREATE INDEX audit_at ON audit (at)
    """
]


class Access:
    def __init__(self, db: Database, clock: Clock, data: Path, *, open_read: bool) -> None:
        self._db = db
        self._clock = clock
        self._file = data / "admin.token"
        anonymous: frozenset[Scope] = frozenset({"read"}) if open_read else frozenset()
        self._anonymous = Caller("anonymous", anonymous, known=False)
        #: hash of a token -> who it stands for, and until when that is believed
        self._seen: dict[str, tuple[Caller, float]] = {}
        self._forgotten = 0

    async def start(self) -> None:
        await self._db.migrate("access", _STEPS)
        admin = self._admin_token()
        await self._db.write(lambda tx: self._store(tx, admin, "admin", ["admin"], self._clock.now(), None))

    def _admin_token(self) -> str:
        """The token in the file; a missing file gets a new one, so that deleting it is how to replace it."""
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            token = _new_token()
            write_private(self._file, f"{token}\n".encode())
            return token

    async def caller(self, token: str | None) -> Caller:
        if token is None:
            return self._anonymous
        hash, now = _hash(token), self._clock.now()
        known, until = self._seen.get(hash, (None, 0.0))
        if known is not None and now < until:
            return known
        forgotten = self._forgotten
        rows = await self._db.read("SELECT * FROM token WHERE hash = :hash", hash=hash)
        if not rows or _expired(rows[0], now):
            raise NeedsToken("this token is not known or has expired", hint="make one with `skep token create`")
        caller = Caller(rows[0]["subject"], frozenset(json.loads(rows[0]["scopes"])))
        if forgotten == self._forgotten:  # else what was read may be older than a revocation
            if len(self._seen) >= _REMEMBER_MOST:
                self._seen.clear()
            self._seen[hash] = caller, min(now + REMEMBER_SECONDS, rows[0]["expires_at"] or inf)
        return caller

    def _forget(self) -> None:
        self._seen.clear()
        self._forgotten += 1

    async def create(
        self, caller: Caller, subject: str, scopes: Sequence[Scope], expires_in: float | None = None
    ) -> NewToken:
        caller.need("admin")
        _check(subject, scopes, expires_in)
        token, now = _new_token(), self._clock.now()
        expires = None if expires_in is None else now + expires_in

        async def work(tx: Tx) -> None:
            await self._store(tx, token, subject, scopes, now, expires)
            await note(tx, now, caller, "token.create", subject)

        await self._db.write(work)
        return NewToken(token, TokenInfo(_hash(token)[:16], subject, sorted(scopes), now, expires))

    async def list(self, caller: Caller, page: str = "", limit: int = 100) -> Page[TokenInfo]:
        caller.need("admin")
        rows = await self._db.read(
            "SELECT * FROM token WHERE hash > :page ORDER BY hash LIMIT :limit", page=page, limit=limit + 1
        )
        items = [_info(row) for row in rows[:limit]]
        return Page(items, rows[limit - 1]["hash"] if len(rows) > limit else "")

    async def revoke(self, caller: Caller, id: str) -> None:
        caller.need("admin")
        if len(id) < 8 or not id.isalnum():
            raise BadInput(f"{id!r} is not a token id", hint="`skep token list` shows the ids")

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("DELETE FROM token WHERE hash LIKE :prefix RETURNING subject", prefix=id + "%")
            if rows:
                await note(tx, self._clock.now(), caller, "token.revoke", rows[0]["subject"])
            return bool(rows)

        found = await self._db.write(work)
        self._forget()
        if not found:
            raise NotFound(f"there is no token {id!r}", hint="`skep token list` shows the ids")

    async def login_ticket(self, caller: Caller) -> str:
        """A ticket for a login link: good once, for ten minutes, with the caller's own scopes."""
        if not caller.known:
            raise NeedsToken("a login link needs a token", hint="send `Authorization: Bearer TOKEN`")
        ticket = _new_token()

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM ticket WHERE expires_at < :now", now=self._clock.now())
            scopes, expires = json.dumps(sorted(caller.scopes)), self._clock.now() + TICKET_SECONDS
            await insert(tx, "ticket", hash=_hash(ticket), subject=caller.subject, scopes=scopes, expires_at=expires)

        await self._db.write(work)
        return ticket

    async def redeem(self, ticket: str) -> str:
        """A token of its own for a browser's session, so that logging out ends that and nothing else."""
        token, now = _new_token(), self._clock.now()

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("DELETE FROM ticket WHERE hash = :hash RETURNING *", hash=_hash(ticket))
            if not rows or _expired(rows[0], now):
                return False
            scopes = json.loads(rows[0]["scopes"])
            await tx.rows("DELETE FROM token WHERE session = 1 AND expires_at <= :now", now=now)
            await self._store(tx, token, rows[0]["subject"], scopes, now, now + SESSION_SECONDS, session=True)
            return True

        if not await self._db.write(work):
            raise NeedsToken("this login link was used or has expired", hint="start `skep up` again or use /login")
        return token

    async def end_session(self, token: str) -> None:
        """Logging out. A token that somebody pasted is no session and stays."""
        sql = "DELETE FROM token WHERE hash = :hash AND session = 1"
        await self._db.write(lambda tx: tx.rows(sql, hash=_hash(token)))
        self._forget()

    async def _store(
        self,
        tx: Tx,
        token: str,
        subject: str,
        scopes: Sequence[Scope],
        now: float,
        expires: float | None,
        *,
        session: bool = False,
    ) -> None:
        await insert(
            tx,
            "token",
            "ON CONFLICT (hash) DO NOTHING",
            hash=_hash(token),
            subject=subject,
            scopes=json.dumps(sorted(scopes)),
            created_at=now,
            expires_at=expires,
            session=int(session),
        )


def _new_token() -> str:
    return "skep_" + base64.b32encode(secrets.token_bytes(32)).decode().lower().rstrip("=")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _expired(row: Row, now: float) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now


def _check(subject: str, scopes: Sequence[Scope], expires_in: float | None) -> None:
    if not subject.strip() or len(subject) > 200 or not subject.isprintable():
        raise BadInput("a token needs a subject of 1 to 200 printable characters")
    unknown = set(scopes) - set(get_args(Scope))
    if unknown or not scopes:
        raise BadInput(f"unknown scopes: {sorted(unknown)}", hint=f"choose from {', '.join(get_args(Scope))}")
    if expires_in is not None and expires_in <= 0:
        raise BadInput("a token cannot expire in the past", hint="give seconds from now")


def _info(row: Row) -> TokenInfo:
    scopes = msgspec.json.decode(row["scopes"], type=list[Scope])
    return TokenInfo(row["hash"][:16], row["subject"], scopes, row["created_at"], row["expires_at"])
