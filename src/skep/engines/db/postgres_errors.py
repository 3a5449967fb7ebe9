"""What PostgreSQL's and asyncpg's errors mean to people."""

import asyncpg

from skep.engines.db.sql import shown
from skep.errors import BadInput, Conflict, Damaged, NoSpace, SkepError, TooLarge, Unavailable

#: everything asyncpg raises on purpose, and what sockets raise below it
CAUSES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

#: ended by the server in favour of another transaction, or planned for tables that changed since
_COLLIDED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InvalidCachedStatementError,
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # the primary became a standby
    asyncpg.InternalClientError,  # what asyncpg says after the server ended a connection nobody was using
    OSError,
    TimeoutError,
)


def lost(error: BaseException) -> bool:
    """The connection is of no use any more."""
    if isinstance(error, asyncpg.InterfaceError):
        return "closed" in str(error) or "released" in str(error)
    return isinstance(error, _LOST)


def worth_another_try(error: BaseException) -> bool:
    return isinstance(error, _COLLIDED) or lost(error)


def meaning(error: Exception, *, where: str, sql: str = "") -> SkepError:
    """`where` is host and port: a URL would carry the password."""
    text = str(error) or type(error).__name__
    at = f" in: {shown(sql)}" if sql else ""
    state = getattr(error, "sqlstate", None) or ""
    if state == "53100":
        return NoSpace("the disk of PostgreSQL is full" + at, hint=f"free some space at {where}")
    if lost(error) or state.startswith("53"):
        return Unavailable(
            f"PostgreSQL does not answer: {text}", hint=f"is it running at {where}, and reachable from here?"
        )
    if state.startswith(("28", "3D")):
        return Unavailable(
            f"PostgreSQL refused us: {text}", hint=f"look at user, password and database name for {where}"
        )
    if state.startswith("23"):
        return Conflict(text + at)
    if isinstance(error, _COLLIDED):
        return Conflict(f"other transactions were in the way too often: {text}{at}", hint="try again in a moment")
    if state.startswith("XX00") and state != "XX000":
        return Damaged(f"PostgreSQL's data is damaged: {text}", hint=f"look at the server's log at {where}")
    if state.startswith("54"):
        return TooLarge(text + at)
    if state.startswith("22") or isinstance(error, asyncpg.DataError):
        return BadInput(f"a value does not fit the database: {text}{at}")
    return SkepError(f"the database refused: {text}{at}")
