"""One SQLite file through apsw: how a connection is set up, how statements run, what its errors mean to people."""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import apsw

from skep.engines.db.base import Row, Value
from skep.engines.db.sql import for_sqlite, shown
from skep.errors import BadInput, Conflict, Damaged, NoSpace, SkepError, TooLarge, Unavailable

Sync = Literal["FULL", "NORMAL", "OFF"]

#: another process holding the file (a backup, a shell) is waited for this long
BUSY_MILLISECONDS = 5_000


#: KiB; whoever reads drops its pages after each write, and the machine keeps the file in memory anyway
_CACHE, _READ_CACHE = 32_768, 4_096


def connect(path: Path, *, sync: Sync = "FULL", read_only: bool = False) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        connection = apsw.Connection(str(path), flags=flags, statementcachesize=512)
    except apsw.Error as error:
        raise meaning(error, None, path=path) from error
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute(f"PRAGMA synchronous = {sync}")
            connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = {-_READ_CACHE if read_only else -_CACHE}")
        connection.execute(
            "SELECT count(*) FROM sqlite_schema"
        ).fetchall()  # a file that is no database shows itself here
    except apsw.Error as error:
        connection.close(True)
        raise meaning(error, connection, path=path) from error
    return connection


def run(connection: apsw.Connection, sql: str, params: Mapping[str, Value]) -> list[Row]:
    try:
        cursor = connection.execute(for_sqlite(sql), params)
        try:
            names = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:
            return []
        return [dict(zip(names, values, strict=True)) for values in cursor]
    except _CAUSES as error:
        raise meaning(error, connection, sql=sql) from error


def run_many(connection: apsw.Connection, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
    try:
        for _ in connection.executemany(for_sqlite(sql), rows):
            pass
    except _CAUSES as error:
        raise meaning(error, connection, sql=sql) from error


#: what apsw raises for a statement: its own errors, and Python's for parameters that are missing or do not fit
_CAUSES = (apsw.Error, KeyError, TypeError, OverflowError, UnicodeEncodeError)


def meaning(
    error: Exception, connection: apsw.Connection | None, *, sql: str = "", path: Path | None = None
) -> SkepError:
    """The error in Skep's words."""
    where = f" in: {shown(sql)}" if sql else f" ({path})" if path else ""
    if _no_space(error, connection):
        return NoSpace("the disk of the database is full" + where, hint="free some space; nothing stored is lost")
    match error:
        case apsw.ConstraintError():
            return Conflict(f"{error}{where}")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"another process holds the database: {error}{where}", hint="try again in a moment")
        case apsw.CorruptError() | apsw.NotADBError():
            return Damaged(f"the database file is damaged: {error}{where}", hint="restore it from a backup")
        case apsw.IOError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            hint = "look at the folder's permissions and at the disk"
            return Unavailable(f"the database file cannot be used: {error}{where}", hint=hint)
        case apsw.TooBigError():
            return TooLarge(f"a value is too large for the database{where}")
        case KeyError():
            return SkepError(f"no value for parameter {error}{where}")
        case TypeError() | OverflowError() | UnicodeEncodeError():
            return BadInput(f"a value does not fit the database: {error}{where}")
        case _:
            return SkepError(f"the database refused: {error}{where}")


def _no_space(error: Exception, connection: apsw.Connection | None) -> bool:
    if isinstance(error, apsw.FullError):
        return True
    number = connection.system_errno if connection is not None and isinstance(error, apsw.IOError) else 0
    return number in {errno.ENOSPC, errno.EDQUOT}
