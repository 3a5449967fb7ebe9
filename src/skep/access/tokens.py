"""Tokens that members join with. Each is bound to the first member that uses it, and each member to one token.

A shared token is for many members that are made alike, such as containers. The worker that a server starts itself has
a secret that exists in memory only, and is good on the server's own socket only.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import get_args

import msgspec

from skep.access.audit import note
from skep.base.answers import MemberToken, NewMemberToken, NewToken, Page, TokenInfo
from skep.base.caller import SYSTEM, Caller, Scope
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, SkepError
from skep.base.io import write_private
from skep.storage.database import Database, Row, Tx, insert

# Access: tokens, who they stand for, and the one-time tickets behind login links.
#
# A token is 256 random bits; only its hash is stored. The admin token of the first start lies in DATA/admin.token.

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
        hash, now = _service_hash(token), self._clock.now()
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
        _service_check(subject, scopes, expires_in)
        token, now = _new_token(), self._clock.now()
        expires = None if expires_in is None else now + expires_in

        async def work(tx: Tx) -> None:
            await self._store(tx, token, subject, scopes, now, expires)
            await note(tx, now, caller, "token.create", subject)

        await self._db.write(work)
        return NewToken(token, TokenInfo(_service_hash(token)[:16], subject, sorted(scopes), now, expires))

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
            await insert(
                tx, "ticket", hash=_service_hash(ticket), subject=caller.subject, scopes=scopes, expires_at=expires
            )

        await self._db.write(work)
        return ticket

    async def redeem(self, ticket: str) -> str:
        """A token of its own for a browser's session, so that logging out ends that and nothing else."""
        token, now = _new_token(), self._clock.now()

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("DELETE FROM ticket WHERE hash = :hash RETURNING *", hash=_service_hash(ticket))
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
        await self._db.write(lambda tx: tx.rows(sql, hash=_service_hash(token)))
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
            hash=_service_hash(token),
            subject=subject,
            scopes=json.dumps(sorted(scopes)),
            created_at=now,
            expires_at=expires,
            session=int(session),
        )


def _new_token() -> str:
    return "skep_" + base64.b32encode(secrets.token_bytes(32)).decode().lower().rstrip("=")


def _service_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _expired(row: Row, now: float) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now


def _service_check(subject: str, scopes: Sequence[Scope], expires_in: float | None) -> None:
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


ROLES = ("worker", "manager")
#: rung when a token was revoked
TOKENS = "member_tokens"
#: a token that runs out ends its streams this much later at most
_LOOK_SECONDS = 60.0
_HINT = "make one with `skep worker token`"
STEPS = [
    """
    CREATE TABLE member_token (
        hash TEXT PRIMARY KEY, name TEXT NOT NULL, roles TEXT NOT NULL, shared BIGINT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION, revoked_at DOUBLE PRECISION
    );
    CREATE TABLE member_bound (member TEXT PRIMARY KEY, hash TEXT NOT NULL);
    CREATE INDEX member_bound_hash ON member_bound (hash)
    """
]


class Tokens:
    def __init__(self, db: Database, clock: Clock, secret: str) -> None:
        self._db = db
        self._clock = clock
        self._secret = _hash(secret)

    async def start(self) -> None:
        await self._db.migrate("member_tokens", STEPS)

    async def create(
        self,
        caller: Caller,
        name: str = "",
        roles: Sequence[str] = ("worker",),
        *,
        shared: bool = False,
        expires_in: float | None = None,
    ) -> NewMemberToken:
        caller.need("admin")
        _check(name, roles, expires_in)
        token = "skepm_" + base64.b32encode(secrets.token_bytes(32)).decode().lower().rstrip("=")
        now = self._clock.now()
        expires = None if expires_in is None else now + expires_in
        await self._store(caller, token, name, roles, shared=shared, expires=expires)
        info = MemberToken(_hash(token)[:16], name, sorted(roles), shared, [], now, expires)
        return NewMemberToken(token, info)

    async def know(self, token: str) -> None:
        """A shared token that was given to all by hand, as a file; one that is known already stays as it is."""
        await self._store(SYSTEM, token, "given by file", ROLES, shared=True, expires=None)

    async def _store(
        self, caller: Caller, token: str, name: str, roles: Sequence[str], *, shared: bool, expires: float | None
    ) -> None:
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            made = await tx.rows(
                "INSERT INTO member_token (hash, name, roles, shared, created_at, expires_at) "
                "VALUES (:hash, :name, :roles, :shared, :now, :expires) ON CONFLICT DO NOTHING RETURNING hash",
                hash=_hash(token),
                name=name,
                roles=",".join(sorted(roles)),
                shared=int(shared),
                now=now,
                expires=expires,
            )
            if made:
                await note(tx, now, caller, "member_token.create", f"{_hash(token)[:16]} {name}".strip())

        await self._db.write(work)

    async def revoke(self, caller: Caller, id: str) -> None:
        """Whoever is attached with it is cut off at once."""
        caller.need("admin")
        now = self._clock.now()

        async def work(tx: Tx) -> bool:
            rows = await tx.rows(
                "UPDATE member_token SET revoked_at = :now WHERE hash LIKE :prefix AND revoked_at IS NULL "
                "RETURNING hash, name",
                now=now,
                prefix=id + "%",
            )
            for row in rows:
                await note(tx, now, caller, "member_token.revoke", f"{row['hash'][:16]} {row['name']}".strip())
            tx.ring(TOKENS)
            return bool(rows)

        if len(id) != 16 or not id.isalnum() or not await self._db.write(work):
            raise NotFound(f"there is no token {id[:100]!r} to revoke", hint="`skep worker tokens` shows the ids")

    async def admit(self, tx: Tx, member: str, token: str, role: str, *, local: bool) -> None:
        """May it join? Part of its hello; the first one binds the two to each other."""
        hash, now = _hash(token), self._clock.now()
        if hmac.compare_digest(hash, self._secret):
            if not local:
                raise NeedsToken("the token of a server's own worker is good on its socket only", hint=_HINT)
            return
        rows = await tx.rows("SELECT * FROM member_token WHERE hash = :hash FOR UPDATE", hash=hash)
        if refusal := _refusal(rows, now):
            raise refusal
        if role not in rows[0]["roles"].split(","):
            raise NotAllowed(
                f"this token is for a {rows[0]['roles'].replace(',', ' or ')}, not for a {role}", hint=_HINT
            )
        if await self._is_bound(tx, rows[0], member, now):
            return
        await tx.rows(
            "INSERT INTO member_bound (member, hash) VALUES (:member, :hash) "
            "ON CONFLICT (member) DO UPDATE SET hash = excluded.hash",
            member=_key(member),
            hash=hash,
        )
        await note(tx, now, Caller(member, frozenset()), "member_token.bind", f"{hash[:16]} {rows[0]['name']}".strip())

    async def _is_bound(self, tx: Tx, token: Row, member: str, now: float) -> bool:
        own = await tx.rows(
            "SELECT member_token.* FROM member_bound JOIN member_token ON member_token.hash = member_bound.hash "
            "WHERE member = :member",
            member=_key(member),
        )
        if any(row["hash"] == token["hash"] for row in own):
            return True
        if own and _refusal(own, now) is None:
            raise Conflict(
                f"{member} has joined with another token ({own[0]['hash'][:16]})",
                hint="was its data folder copied? else revoke that token first with `skep worker revoke`",
            )
        if not own and await tx.rows("SELECT id FROM member WHERE id = :member", member=member):
            raise Conflict(f"{member} is a member already, without a token", hint="was its data folder copied?")
        if not token["shared"]:
            taken = await tx.rows("SELECT member FROM member_bound WHERE hash = :hash", hash=token["hash"])
            if taken:
                raise NotAllowed(
                    f"this token belongs to another member ({taken[0]['member']})",
                    hint=f"each has its own: {_HINT}, or --shared for many that are made alike",
                )
        return False

    async def unbind(self, tx: Tx, member: str) -> None:
        """The member is forgotten: its token may be used by another."""
        await tx.rows("DELETE FROM member_bound WHERE member = :member", member=_key(member))

    async def watch(self, token: str) -> None:
        """Raises as soon as the token is no longer good; else never returns."""
        hash = _hash(token)
        if hash == self._secret:
            await asyncio.Event().wait()
        async with self._db.listen(TOKENS) as bell:
            while True:
                rows = await self._db.read("SELECT * FROM member_token WHERE hash = :hash", hash=hash)
                if refusal := _refusal(rows, self._clock.now()):
                    raise refusal
                await bell.wait(_LOOK_SECONDS)

    async def list(self, caller: Caller) -> list[MemberToken]:
        caller.need("admin")
        rows = await self._db.read("SELECT * FROM member_token ORDER BY created_at, hash")
        bound: dict[str, list[str]] = {}
        for row in await self._db.read("SELECT member, hash FROM member_bound ORDER BY member"):
            bound.setdefault(row["hash"], []).append(row["member"])
        return [
            MemberToken(
                row["hash"][:16],
                row["name"],
                row["roles"].split(","),
                bool(row["shared"]),
                bound.get(row["hash"], []),
                row["created_at"],
                row["expires_at"],
                row["revoked_at"],
            )
            for row in rows
        ]


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _key(member: str) -> str:
    """`wrk_X` and `man_X` are two roles of one process."""
    return member.partition("_")[2] or member


def _refusal(rows: Sequence[Row], now: float) -> SkepError | None:
    if not rows:
        return NeedsToken("this token is not known to the coordinator", hint=_HINT)
    named = f"the token {rows[0]['hash'][:16]}" + (f" ({rows[0]['name']})" if rows[0]["name"] else "")
    if rows[0]["revoked_at"] is not None:
        return NeedsToken(f"{named} was revoked", hint=_HINT)
    if rows[0]["expires_at"] is not None and rows[0]["expires_at"] <= now:
        day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(rows[0]["expires_at"]))
        return NeedsToken(f"{named} has expired at {day} UTC", hint=_HINT)
    return None


def _check(name: str, roles: Sequence[str], expires_in: float | None) -> None:
    if len(name) > 200 or not name.isprintable():
        raise BadInput("a token's name has at most 200 printable characters")
    if not roles or set(roles) - set(ROLES):
        raise BadInput("a token is for the role worker, manager, or both")
    if expires_in is not None and expires_in <= 0:
        raise BadInput("a token cannot expire in the past", hint="give seconds from now")
