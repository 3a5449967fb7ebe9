"""The tables of DataONE and how their rows become nouns."""

from collections.abc import Collection, Sequence

import msgspec

from skep.dataone.decision import Version
from skep.dataone.types import AUTHENTICATED, FormatType, Replica, SystemMetadata
from skep.storage.database import Row, Tx, Value

STEPS = [
    """
    CREATE TABLE member_node (
        urn TEXT PRIMARY KEY, source TEXT UNIQUE, doc TEXT NOT NULL, limits TEXT NOT NULL,
        registered BIGINT NOT NULL, paused BIGINT NOT NULL, place BIGINT NOT NULL, newest BIGINT NOT NULL,
        pass BIGINT NOT NULL, full_place BIGINT, full_at DOUBLE PRECISION NOT NULL, listed_at DOUBLE PRECISION NOT NULL,
        skew BIGINT NOT NULL, note TEXT NOT NULL, batches BIGINT NOT NULL
    );
    CREATE TABLE offer (
        source TEXT NOT NULL, pid TEXT NOT NULL, modified BIGINT NOT NULL, checksum TEXT NOT NULL,
        state TEXT NOT NULL, reason TEXT NOT NULL, due DOUBLE PRECISION NOT NULL, tries BIGINT NOT NULL,
        ticket TEXT NOT NULL, until DOUBLE PRECISION NOT NULL, again BIGINT NOT NULL, pass BIGINT NOT NULL,
        seq BIGINT NOT NULL, version TEXT, PRIMARY KEY (source, pid)
    );
    CREATE INDEX offer_due ON offer (source, due) WHERE state IN ('queued', 'missing');
    CREATE INDEX offer_pid ON offer (pid);
    CREATE TABLE sysmeta (
        pid TEXT PRIMARY KEY, series TEXT, node TEXT NOT NULL, format TEXT NOT NULL, kind TEXT NOT NULL,
        modified BIGINT NOT NULL, uploaded BIGINT NOT NULL, obsoletes TEXT, obsoleted_by TEXT,
        archived BIGINT NOT NULL, deleted BIGINT NOT NULL, public BIGINT NOT NULL, size BIGINT NOT NULL,
        algorithm TEXT NOT NULL, checksum TEXT NOT NULL, serial BIGINT NOT NULL, body BYTEA NOT NULL,
        blob TEXT, start BIGINT, changed DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX sysmeta_series ON sysmeta (series);
    CREATE INDEX sysmeta_blob ON sysmeta (blob);
    CREATE INDEX sysmeta_modified ON sysmeta (modified, pid);
    CREATE INDEX sysmeta_obsoletes ON sysmeta (obsoletes);
    CREATE INDEX sysmeta_obsoleted_by ON sysmeta (obsoleted_by);
    CREATE TABLE reader (subject TEXT NOT NULL, pid TEXT NOT NULL, PRIMARY KEY (pid, subject));
    CREATE TABLE sysmeta_history (
        pid TEXT NOT NULL, serial BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, node TEXT NOT NULL,
        body BYTEA NOT NULL, PRIMARY KEY (pid, serial)
    );
    CREATE TABLE story (
        pid TEXT NOT NULL, node TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL,
        first_at DOUBLE PRECISION NOT NULL, at DOUBLE PRECISION NOT NULL, times BIGINT NOT NULL,
        PRIMARY KEY (pid, node, verdict, reason)
    );
    CREATE TABLE replica (
        pid TEXT NOT NULL, node TEXT NOT NULL, status TEXT NOT NULL, verified BIGINT NOT NULL,
        tries BIGINT NOT NULL, due DOUBLE PRECISION, PRIMARY KEY (pid, node)
    );
    CREATE INDEX replica_due ON replica (due) WHERE due IS NOT NULL;
    CREATE INDEX replica_status ON replica (status, node);
    CREATE TABLE reservation (id TEXT PRIMARY KEY, subject TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);
    CREATE TABLE backlog (work TEXT NOT NULL, pid TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (work, pid));
    CREATE INDEX backlog_at ON backlog (work, at);
    CREATE TABLE errand (
        id TEXT PRIMARY KEY, urn TEXT NOT NULL, kind TEXT NOT NULL, pid TEXT NOT NULL, body BYTEA NOT NULL,
        due DOUBLE PRECISION NOT NULL, tries BIGINT NOT NULL, done BIGINT NOT NULL
    );
    CREATE INDEX errand_due ON errand (urn, due) WHERE done = 0;
    CREATE TABLE dataone_lock (id BIGINT PRIMARY KEY);
    INSERT INTO dataone_lock (id) VALUES (0)
    """,
    """
    ALTER TABLE sysmeta ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0;
    UPDATE sysmeta SET stamp = CAST(changed * 1000 AS BIGINT);
    ALTER TABLE sysmeta DROP COLUMN changed;
    CREATE INDEX sysmeta_stamp ON sysmeta (stamp, pid)
    """,
    """
    CREATE TABLE dataone_copy (
        pid TEXT PRIMARY KEY, source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, told BIGINT NOT NULL,
        dirty BIGINT NOT NULL, due DOUBLE PRECISION, tries BIGINT NOT NULL, blob TEXT, size BIGINT NOT NULL,
        format TEXT NOT NULL, modified BIGINT NOT NULL, public BIGINT NOT NULL, body BYTEA NOT NULL
    );
    CREATE INDEX dataone_copy_due ON dataone_copy (due) WHERE due IS NOT NULL;
    CREATE INDEX dataone_copy_blob ON dataone_copy (blob);
    CREATE INDEX dataone_copy_modified ON dataone_copy (modified, pid)
    """,
    # who said it; of what other nodes said in the name of one, versions and series are indexed again
    """
    ALTER TABLE sysmeta ADD COLUMN said_by TEXT NOT NULL DEFAULT '';
    ALTER TABLE sysmeta ADD COLUMN series_since BIGINT NOT NULL DEFAULT 0;
    UPDATE sysmeta SET said_by = node, series_since = COALESCE((SELECT CAST(min(at) * 1000 AS BIGINT)
        FROM sysmeta_history WHERE sysmeta_history.pid = sysmeta.pid), stamp);
    UPDATE sysmeta SET said_by = COALESCE((SELECT node FROM sysmeta_history
            WHERE sysmeta_history.pid = sysmeta.pid ORDER BY serial DESC LIMIT 1), node)
        WHERE NOT EXISTS (SELECT 1 FROM replica WHERE replica.pid = sysmeta.pid AND replica.node = sysmeta.node);
    INSERT INTO backlog (work, pid, at) SELECT 'index', pid, 0 FROM sysmeta WHERE said_by <> node
        UNION SELECT 'index', obsoletes, 0 FROM sysmeta WHERE said_by <> node AND obsoletes IS NOT NULL
        UNION SELECT 'index', obsoleted_by, 0 FROM sysmeta WHERE said_by <> node AND obsoleted_by IS NOT NULL
        ON CONFLICT (work, pid) DO NOTHING
    """,
    """
    ALTER TABLE sysmeta ADD COLUMN narrowed BIGINT;
    CREATE INDEX sysmeta_narrowed ON sysmeta (narrowed) WHERE narrowed IS NOT NULL;
    UPDATE sysmeta SET narrowed = 1 WHERE (archived = 1 OR deleted = 1 OR public = 0) AND pid IN
        (SELECT pid FROM backlog WHERE work LIKE 'index%')
    """,
]

#: something about an object changed. Its stamp (milliseconds) is later than it ever was, so that whoever listed it sees
TOUCH = """
    UPDATE sysmeta SET serial = CASE WHEN serial >= :serial THEN serial + 1 ELSE :serial END,
        stamp = CASE WHEN :stamp > stamp THEN :stamp ELSE stamp + 1 END WHERE pid = :pid
"""
PUT_META = """
    INSERT INTO sysmeta (pid, series, node, format, kind, modified, uploaded, obsoletes, obsoleted_by, archived,
        deleted, public, size, algorithm, checksum, serial, body, blob, start, stamp, said_by, series_since)
    VALUES (:pid, :series, :node, :format, :kind, :modified, :uploaded, :obsoletes, :obsoleted_by, :archived, 0,
        :public, :size, :algorithm, :checksum, :serial, :body, :blob, :start, :stamp, :said_by, :stamp)
    ON CONFLICT (pid) DO UPDATE SET series = excluded.series, node = excluded.node, format = excluded.format,
        kind = excluded.kind, modified = excluded.modified, uploaded = excluded.uploaded,
        obsoletes = excluded.obsoletes, obsoleted_by = excluded.obsoleted_by, archived = excluded.archived, deleted = 0,
        public = excluded.public, serial = excluded.serial, body = excluded.body, said_by = excluded.said_by,
        series_since = CASE WHEN sysmeta.series = excluded.series THEN sysmeta.series_since ELSE excluded.stamp END,
        blob = COALESCE(excluded.blob, sysmeta.blob), start = COALESCE(excluded.start, sysmeta.start),
        stamp = CASE WHEN excluded.stamp > sysmeta.stamp THEN excluded.stamp ELSE sysmeta.stamp + 1 END
"""
HISTORY = """
    INSERT INTO sysmeta_history (pid, serial, at, node, body) VALUES (:pid, :serial, :now, :urn, :body)
    ON CONFLICT (pid, serial) DO NOTHING
"""
#: also when it waits already: whoever is at it now sees that it was not the last time
WAIT = """
    INSERT INTO backlog (work, pid, at) VALUES (:work, :pid, :now) ON CONFLICT (work, pid) DO UPDATE
    SET at = CASE WHEN excluded.at > backlog.at THEN excluded.at ELSE backlog.at + 0.000001 END
"""
#: it is done, as it was read: what changed again meanwhile stays
WORKED = "DELETE FROM backlog WHERE work = :work AND pid = :pid AND at = :at"
#: seconds after which a copy is compared with its checksum again
AUDIT = 30 * 86_400.0
#: a copy is yet to be made; who was asked for it by another Coordinating Node is asked by us after so many seconds
OPEN, ELSEWHERE = ("queued", "requested"), 2 * 86_400.0
#: what lacks copies waits here
UNMET = "unmet"
#: rung when there is more to index or to replicate
BACKLOG = "dataone.backlog"
decode_meta = msgspec.msgpack.Decoder(SystemMetadata).decode


class Stored(msgspec.Struct, frozen=True):
    """An object as we know it: its system metadata with our own replica list and counter, and where its bytes are."""

    meta: SystemMetadata
    kind: FormatType
    deleted: bool
    #: None: we have no bytes of it
    blob: str | None
    start: int
    #: the node whose word the system metadata is
    said_by: str = ""


def stored(row: Row, replicas: Sequence[Row] = ()) -> Stored:
    meta = msgspec.structs.replace(decode_meta(row["body"]), serial_version=row["serial"], replica=holders(replicas))
    return Stored(meta, row["kind"], bool(row["deleted"]), row["blob"], row["start"] or 0, row["said_by"])


#: the columns of `version`
VERSION = "pid, obsoletes, obsoleted_by, uploaded, node, said_by, series_since, series"


def version(row: Row) -> Version:
    return Version(*(row[name] for name in VERSION.split(", ")[:-1]))


def holders(rows: Sequence[Row]) -> tuple[Replica, ...]:
    return tuple(map(replica, rows))


def replica(row: Row) -> Replica:
    return Replica(row["node"], row["status"], row["verified"])


def meta_row(meta: SystemMetadata, kind: FormatType, said_by: str, now: float) -> dict[str, Value]:
    """Without the place of its bytes."""
    return {
        "pid": meta.identifier,
        "series": meta.series_id,
        "node": meta.authoritative_member_node or "",
        "format": meta.format_id,
        "kind": kind,
        "modified": meta.date_sys_metadata_modified or 0,
        "uploaded": meta.date_uploaded or 0,
        "obsoletes": meta.obsoletes,
        "obsoleted_by": meta.obsoleted_by,
        "archived": int(bool(meta.archived)),
        "public": int(meta.public),
        "size": meta.size,
        "algorithm": meta.checksum.algorithm,
        "checksum": meta.checksum.value,
        "serial": meta.serial_version or 1,
        "body": msgspec.msgpack.encode(meta),
        "stamp": int(now * 1000),
        "said_by": said_by,
    }


def readers(meta: SystemMetadata) -> set[str]:
    """Who may read it, where not everybody may."""
    rules = meta.access_policy.allow if meta.access_policy else ()
    return {meta.rights_holder, *(subject for rule in rules if rule.permission for subject in rule.subject)}


def confided(other: SystemMetadata, one: SystemMetadata) -> bool:
    """May everybody who reads the one know what the other says of it?"""
    if other.public or one.public:
        return other.public
    return all(other.may("read", frozenset({reader, AUTHENTICATED})) for reader in readers(one))


def narrows(old: SystemMetadata, new: SystemMetadata) -> bool:
    """Somebody who found it must not find it any more."""
    if new.archived:
        return not old.archived
    return not new.public and (old.public or not readers(old) <= readers(new))


async def narrow(tx: Tx, pids: Collection[str]) -> None:
    """These are for fewer than before, or for nobody. Each has a number then, higher than any before: whoever keeps
    an index knows by the numbers what to withdraw from it. Only `alone`."""
    rows = await tx.rows("SELECT narrowed FROM sysmeta WHERE narrowed > 0 ORDER BY narrowed DESC LIMIT 1")
    first = rows[0]["narrowed"] + 1 if rows else 1
    sql = "UPDATE sysmeta SET narrowed = :number WHERE pid = :pid"
    await tx.many(sql, [{"pid": pid, "number": first + n} for n, pid in enumerate(pids)])


async def alone(tx: Tx) -> None:
    """Whoever decides anything of objects and their copies does so one after the other: two nodes may offer one object
    at the same moment. Before any row of them is locked."""
    await tx.rows("SELECT id FROM dataone_lock WHERE id = 0 FOR UPDATE")


async def welcome(tx: Tx, now: float) -> None:
    """There is somebody who may take what nobody could."""
    await alone(tx)  # whoever looks for somebody just now finds this one, or what it leaves waiting is moved
    await tx.rows("UPDATE backlog SET at = :now WHERE work = :work", now=now, work=UNMET)
