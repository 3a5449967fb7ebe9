"""Tokens that members join with. Each is bound to the first member that uses it, and each member to one token.

A shared token is for many members that are made alike, such as containers. The worker that a server starts itself has
a secret that exists in memory only, and is good on the server's own socket only.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, SkepError
from skep.model.answers import MemberToken, NewMemberToken
from skep.model.caller import SYSTEM, Caller

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
